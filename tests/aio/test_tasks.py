"""Futures and tasks that the loop makes."""

from __future__ import annotations

import asyncio
import contextvars
import sys
from typing import Any
from unittest import mock

import pytest

import whorl
from tests.aio.peers import turns
from tests.aio.stock import error_as_in_asyncio, is_as_in_asyncio

pytestmark = pytest.mark.usefixtures("no_leak")

HAS_EAGER_TASKS = sys.version_info >= (3, 12)
FACTORIES_TAKE_OPTIONS = sys.version_info >= (3, 14)

name = contextvars.ContextVar("name", default="outside")


async def get_name() -> str:
    return name.get()


# Futures.


def test_a_future_belongs_to_the_loop(loop: whorl.EventLoop) -> None:
    future = loop.create_future()
    assert isinstance(future, asyncio.Future)
    assert future.get_loop() is loop


async def test_a_future_wakes_who_awaits_it(loop: whorl.EventLoop) -> None:
    future = loop.create_future()
    loop.call_soon(future.set_result, "woken")
    assert await future == "woken"


# Tasks.


async def test_a_task_is_an_asyncio_task(loop: whorl.EventLoop) -> None:
    task = loop.create_task(get_name())
    assert type(task) is asyncio.Task
    assert task.get_loop() is loop
    assert await task == "outside"


async def test_a_task_gets_the_name_it_is_given(loop: whorl.EventLoop) -> None:
    task = loop.create_task(get_name(), name="Ulrich")
    assert task.get_name() == "Ulrich"
    await task


async def test_a_task_runs_in_the_context_it_is_given(loop: whorl.EventLoop) -> None:
    context = contextvars.copy_context()
    context.run(name.set, "inside")
    assert await loop.create_task(get_name(), context=context) == "inside"


async def test_a_task_runs_in_a_copy_of_the_current_context(loop: whorl.EventLoop) -> None:
    async def rename() -> None:
        name.set("changed")

    await loop.create_task(rename())
    assert name.get() == "outside"


async def test_tasks_begin_in_the_next_turn_in_order(loop: whorl.EventLoop) -> None:
    ran: list[int] = []

    async def note(number: int) -> None:
        ran.append(number)

    tasks = [loop.create_task(note(number)) for number in range(3)]
    assert ran == []
    await turns(1)
    assert ran == [0, 1, 2]
    await asyncio.gather(*tasks)


async def test_an_eager_task_begins_at_once_where_there_are_eager_tasks(loop: whorl.EventLoop) -> None:
    task = loop.create_task(get_name(), eager_start=True)
    assert task.done() is HAS_EAGER_TASKS
    assert await task == "outside"


async def test_an_eager_start_may_be_declined(loop: whorl.EventLoop) -> None:
    task = loop.create_task(get_name(), eager_start=False)
    assert not task.done()
    assert await task == "outside"


@pytest.mark.skipif(not HAS_EAGER_TASKS, reason="eager tasks are new in Python 3.12")
async def test_the_eager_task_factory_works(loop: whorl.EventLoop) -> None:
    loop.set_task_factory(asyncio.eager_task_factory)
    assert asyncio.create_task(get_name()).done()


def test_an_unknown_option_is_refused(loop: whorl.EventLoop) -> None:
    coroutine = get_name()
    with pytest.raises(TypeError, match="colour"):
        loop.create_task(coroutine, colour="green")
    coroutine.close()


@pytest.mark.parametrize("wrong", [None, 1, print])
def test_what_is_no_coroutine_is_refused(wrong: Any) -> None:
    assert error_as_in_asyncio(lambda loop: loop.create_task(wrong))[0] is TypeError


async def test_the_task_class_is_looked_up_when_it_is_needed(loop: whorl.EventLoop) -> None:
    class OwnTask(asyncio.tasks._PyTask):  # type: ignore[name-defined, misc]
        pass

    with mock.patch.object(asyncio.tasks, "Task", OwnTask):
        task = loop.create_task(get_name())
    assert type(task) is OwnTask
    await task


async def test_debug_mode_shows_where_a_task_was_created(loop: whorl.EventLoop) -> None:
    loop.set_debug(True)
    task: Any = loop.create_task(get_name())
    last = task._source_traceback[-1]
    assert (last.filename, last.line) == (__file__, "task: Any = loop.create_task(get_name())")
    await task


# The task factory.


class Factory:
    """Makes tasks, and notes the keywords it is given."""

    def __init__(self) -> None:
        self.options: list[list[str]] = []

    def __call__(self, loop: Any, coro: Any, **options: Any) -> Any:
        self.options.append(sorted(options))
        return asyncio.Task(coro, loop=loop, **options)


@pytest.mark.parametrize(
    "options",
    [{}, {"name": "Ulrich"}, {"context": contextvars.copy_context()}],
    ids=["no option", "name", "context"],
)
def test_a_factory_is_called_as_asyncio_calls_it(options: dict[str, Any]) -> None:
    async def create(loop: Any) -> Any:
        factory = Factory()
        loop.set_task_factory(factory)
        task = loop.create_task(get_name(), **options)
        loop.set_task_factory(None)
        await task
        return factory.options, task.get_name() if "name" in options else None

    is_as_in_asyncio(create)


async def test_a_factory_that_knows_no_options_works(loop: whorl.EventLoop) -> None:
    loop.set_task_factory(lambda loop, coro: asyncio.Task(coro, loop=loop))
    if not FACTORIES_TAKE_OPTIONS:
        assert await loop.create_task(get_name(), name="Ulrich", eager_start=False) == "outside"
    assert await loop.create_task(get_name()) == "outside"
    assert await asyncio.ensure_future(get_name()) == "outside"


async def test_the_factory_can_be_asked_for_and_taken_away(loop: whorl.EventLoop) -> None:
    factory = Factory()
    loop.set_task_factory(factory)
    assert loop.get_task_factory() is factory
    loop.set_task_factory(None)
    assert loop.get_task_factory() is None
    await loop.create_task(get_name())
    assert factory.options == []


def test_a_factory_that_cannot_be_called_is_refused() -> None:
    assert error_as_in_asyncio(lambda loop: loop.set_task_factory(1))[0] is TypeError


# asyncio's own tools on the loop.


async def test_gather_timeouts_and_task_groups_work(loop: whorl.EventLoop) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(asyncio.sleep(0, number)) for number in range(3)]
    assert [task.result() for task in tasks] == [0, 1, 2]
    assert await asyncio.gather(*(asyncio.sleep(0, number) for number in range(3))) == [0, 1, 2]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await loop.create_future()


async def test_the_running_task_is_known(loop: whorl.EventLoop) -> None:
    task = asyncio.current_task()
    assert task is not None
    assert task in asyncio.all_tasks(loop)
