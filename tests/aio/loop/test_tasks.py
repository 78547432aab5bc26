"""Futures and tasks that the loop makes."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import re
import sys
import types
import weakref
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import pytest

import whorl
from tests.aio.compare_with_asyncio import error_as_in_asyncio, is_as_in_asyncio
from tests.aio.sockets_for_tests import turns

pytestmark = pytest.mark.usefixtures("no_leak")

HAS_EAGER_TASKS = sys.version_info >= (3, 12)
FACTORIES_TAKE_OPTIONS = "kwargs" in inspect.signature(asyncio.BaseEventLoop.create_task).parameters

name = contextvars.ContextVar("name", default="outside")


async def get_name() -> str:
    return name.get()


# Futures.


def test_a_future_belongs_to_the_loop(loop: whorl.EventLoop) -> None:
    future = loop.create_future()
    assert isinstance(future, asyncio.Future)
    assert future.get_loop() is loop


async def test_futures_and_tasks_belong_to_their_loop_while_another_one_runs(loop: whorl.EventLoop) -> None:
    other = whorl.EventLoop()
    future, task = other.create_future(), other.create_task(get_name())
    assert (future.get_loop(), task.get_loop()) == (other, other)
    await asyncio.to_thread(other.run_until_complete, task)
    other.close()


def test_futures_and_tasks_belong_to_their_loop_in_another_thread(loop: whorl.EventLoop) -> None:
    async def make() -> tuple[asyncio.Future[Any], asyncio.Task[str]]:
        return loop.create_future(), loop.create_task(get_name())

    with ThreadPoolExecutor(1) as pool:
        future, task = pool.submit(asyncio.run, make()).result()
    assert (future.get_loop(), task.get_loop()) == (loop, loop)
    loop.run_until_complete(task)


async def test_the_future_class_is_looked_up_when_it_is_needed(loop: whorl.EventLoop) -> None:
    class Future(asyncio.Future[Any]):
        pass

    with mock.patch.object(asyncio.futures, "Future", Future):
        future = loop.create_future()
    assert type(future) is Future
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


@pytest.mark.parametrize("options", [{}, {"name": None}, {"context": None}, {"name": None, "context": None}])
async def test_a_task_without_a_name_gets_one(loop: whorl.EventLoop, options: dict[str, Any]) -> None:
    task = loop.create_task(get_name(), **options)
    assert re.fullmatch(r"Task-\d+", task.get_name())
    assert await task == "outside"


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
def test_create_task_refuses_a_non_coroutine(wrong: Any) -> None:
    assert error_as_in_asyncio(lambda loop: loop.create_task(wrong))[0] is TypeError


@pytest.mark.parametrize("wrong", [None, 1, print])
async def test_create_task_of_the_running_loop_refuses_a_non_coroutine(
    loop: whorl.EventLoop, wrong: Any
) -> None:
    for _ in range(2):
        with pytest.raises(TypeError, match="a coroutine was expected"):
            loop.create_task(wrong)
    assert await loop.create_task(get_name()) == "outside"


async def test_create_task_refuses_invalid_arguments(loop: whorl.EventLoop) -> None:
    create: Any = loop.create_task
    unbound: Any = whorl.EventLoop.create_task
    coroutine = get_name()
    for wrong in (
        lambda: create(),
        lambda: create(coroutine, None),
        lambda: create(coroutine, nam=None),
        lambda: create(coroutine, coro=coroutine),
        lambda: unbound(),
        lambda: unbound(coroutine),
    ):
        with pytest.raises(TypeError):
            wrong()
    for other in (3, None, object()):
        with pytest.raises((TypeError, AttributeError)):
            unbound(other, coroutine)
    assert await unbound(loop, coro=coroutine) == "outside"


async def test_coroutine_of_a_done_task_is_freed(loop: whorl.EventLoop) -> None:
    coroutine = get_name()
    reference = weakref.ref(coroutine)
    await loop.create_task(coroutine)
    del coroutine
    await turns(1)  # This callback was called with the task.
    assert reference() is None


def test_making_a_task_may_make_another() -> None:
    class Nesting(whorl.EventLoop):
        depth = 0

        def call_soon(self, callback: Any, *args: Any, **options: Any) -> Any:
            if self.depth:
                self.depth -= 1
                made.append(self.create_task(get_name()))
            return super().call_soon(callback, *args, **options)

    async def main() -> list[str]:
        loop.depth = 3
        made.append(loop.create_task(get_name()))
        return await asyncio.gather(*made)

    made: list[asyncio.Task[str]] = []
    loop = Nesting()
    assert loop.run_until_complete(main()) == ["outside"] * 4
    assert len(set(made)) == 4
    loop.close()


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


# Objects for which a task may wait.


class ForeignFuture:
    """A future that is none of asyncio's, and speaks their protocol."""

    _asyncio_future_blocking: bool | None = None

    def __init__(self, loop: Any) -> None:
        self.loop = loop

    def get_loop(self) -> Any:
        return self.loop

    def add_done_callback(self, callback: Any, *, context: Any = None) -> None:
        self.loop.call_soon(callback, self, context=context)

    def result(self) -> str:
        return "foreign"

    def __await__(self) -> Any:
        self._asyncio_future_blocking = True
        yield self
        return self.result()


def test_a_task_waits_for_a_foreign_future() -> None:
    async def wait(loop: Any) -> Any:
        return await ForeignFuture(loop)  # type: ignore[misc]

    assert is_as_in_asyncio(wait) == "foreign"


@types.coroutine
def generator_coroutine(value: Any) -> Any:
    """Return a coroutine made of a generator."""
    return (yield value)


@pytest.mark.parametrize("value", [None, 5, "text"])
def test_a_task_takes_what_a_generator_yields(value: Any) -> None:
    async def run(loop: Any) -> Any:
        try:
            return await generator_coroutine(value)
        except RuntimeError as error:
            return str(error)

    assert is_as_in_asyncio(run) == (None if value is None else f"Task got bad yield: {value!r}")


class HandMade(Coroutine[Any, Any, str]):
    """A coroutine that is an object with the right methods, as those of Cython's are."""

    def __init__(self) -> None:
        self.left = 3

    def send(self, value: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise StopIteration("made by hand")

    def throw(self, *error: Any) -> Any:
        raise error[0]

    def close(self) -> None:
        pass

    def __await__(self) -> Any:
        return self


@pytest.mark.parametrize("debug", [False, True])
def test_a_coroutine_may_be_any_object_that_acts_as_one(debug: bool) -> None:
    def run(loop: Any) -> Any:
        loop.set_debug(debug)
        try:
            loop.call_soon(HandMade())
        except TypeError as error:
            refusal = str(error)
        else:
            refusal = ""
            loop.set_exception_handler(lambda loop, context: None)
        return (
            refusal,
            loop.run_until_complete(HandMade()),
            loop.run_until_complete(loop.create_task(HandMade())),
        )

    refusal, *results = is_as_in_asyncio(run)
    assert results == ["made by hand"] * 2
    assert bool(refusal) is debug


def test_a_future_of_another_loop_is_an_error_in_the_task(loop: whorl.EventLoop) -> None:
    async def wait(running: Any) -> Any:
        try:
            await loop.create_future()
        except RuntimeError as error:
            return str(error).partition(" got Future ")[2]

    assert is_as_in_asyncio(wait) == "<Future pending> attached to a different loop"


async def fail() -> None:
    raise ZeroDivisionError


def is_freed_with_its_last_reference(loop: asyncio.AbstractEventLoop, **options: Any) -> bool:
    """Return whether no frame in the traceback of its error keeps an eager task."""
    gc.disable()
    try:
        task = loop.create_task(fail(), **options)
        reference, error = weakref.ref(task), task.exception()
        del task
        assert error is not None
        return reference() is None
    finally:
        gc.enable()


@pytest.mark.skipif(not HAS_EAGER_TASKS, reason="eager tasks are new in Python 3.12")
@pytest.mark.parametrize("tasks", ["compiled", "cpython"])
def test_an_eager_task_that_failed_is_freed_with_its_last_reference(tasks: str) -> None:
    async def main() -> bool:
        return is_freed_with_its_last_reference(asyncio.get_running_loop(), eager_start=True)

    assert whorl.run(main(), tasks=tasks)


@pytest.mark.skipif(sys.version_info < (3, 13, 2), reason="asyncio's frame keeps it before (gh-128552)")
async def test_an_eager_task_of_a_factory_is_freed_with_its_last_reference(loop: whorl.EventLoop) -> None:
    loop.set_task_factory(asyncio.eager_task_factory)
    assert is_freed_with_its_last_reference(loop)


@pytest.mark.skipif(not HAS_EAGER_TASKS, reason="eager tasks are new in Python 3.12")
def test_eager_tasks_run_in_asyncios_order() -> None:
    async def run(loop: Any) -> Any:
        order: list[Any] = []

        async def work(name: str) -> None:
            order.append((name, asyncio.current_task() is not None, len(asyncio.all_tasks())))
            await asyncio.sleep(0)
            order.append(name)

        async def fail() -> None:
            raise LookupError

        loop.set_task_factory(asyncio.eager_task_factory)
        first = asyncio.create_task(work("first"))
        order.append("after the first")
        loop.set_task_factory(None)
        second = asyncio.Task(work("second"), loop=loop, eager_start=True)  # type: ignore[call-arg, unused-ignore]
        order.append("after the second")
        await asyncio.gather(first, second)
        failed = asyncio.Task(fail(), loop=loop, eager_start=True)  # type: ignore[call-arg, unused-ignore]
        return order, failed.done(), type(failed.exception())

    order, *rest = is_as_in_asyncio(run)
    assert [item for item in order if isinstance(item, str)] == [
        "after the first",
        "after the second",
        "first",
        "second",
    ]
    assert rest == [True, LookupError]


@pytest.mark.parametrize("name", [None, "name"])
def test_a_factory_may_make_anything(name: str | None) -> None:
    def make(loop: Any, coro: Any, **options: Any) -> Any:
        coro.close()
        return "no task"

    def create(loop: Any) -> Any:
        loop.set_task_factory(make)
        try:
            return loop.create_task(get_name(), name=name)
        finally:
            loop.set_task_factory(None)

    is_as_in_asyncio(create)


@pytest.mark.parametrize("lost", ["task", "future", "pending"])
def test_lost_errors_and_pending_tasks_are_logged_as_on_asyncios_loop(
    lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise LookupError("lost")

    def lose(loop: Any) -> Any:
        caplog.clear()

        async def begin() -> None:
            if lost == "future":
                loop.create_future().set_exception(LookupError("lost"))
            elif lost == "task":
                loop.create_task(fail(), name="lost")
            await turns(3)

        loop.run_until_complete(begin())
        if lost == "pending":
            task: Any = loop.create_task(asyncio.sleep(3600), name="lost")
            loop.run_until_complete(turns(1))
            loop.close()
            del task
        gc.collect()
        texts = [re.sub(r"0x\w+|\S+\.py:\d+", "", record.getMessage()) for record in caplog.records]
        return [text.partition("wait_for=")[0] for text in texts]

    [text] = is_as_in_asyncio(lose)
    assert ("was destroyed but it is pending" if lost == "pending" else "never retrieved") in text


async def test_a_class_of_tasks_put_in_place_of_asyncios_is_used(
    loop: whorl.EventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Task(asyncio.Task[Any]):
        pass

    monkeypatch.setattr(asyncio.tasks, "Task", Task)
    assert type(loop.create_task(asyncio.sleep(0))) is Task
    monkeypatch.undo()
    assert type(loop.create_task(asyncio.sleep(0))) is asyncio.Task
    await asyncio.sleep(0)
    await asyncio.sleep(0)
