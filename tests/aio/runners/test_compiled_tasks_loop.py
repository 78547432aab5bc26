"""Futures and tasks of Whorl's own: what CPython's tests of its two kinds do not ask."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

import pytest

import whorl
from whorl.aio.futures.future import Future
from whorl.aio.futures.task import Task
from whorl.aio.runners import compiled_tasks_loop
from whorl.aio.runners.compiled_tasks_loop import CompiledTasksEventLoop


def run(main: Coroutine[Any, Any, Any], **options: Any) -> Any:
    return whorl.run(main, tasks="compiled", **options)


async def nothing() -> None:
    pass


class Unregistered:
    """Stands for a task that asyncio does not know yet."""


def test_the_loop_makes_futures_and_tasks_of_ours() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert type(loop) is CompiledTasksEventLoop
        assert type(asyncio.current_task()) is Task
        assert type(loop.create_future()) is Future
        task = asyncio.create_task(nothing())
        assert type(task) is Task
        await task

    run(main())


def test_asyncio_takes_objects_of_derived_classes_for_futures() -> None:
    class Mine(Future):
        pass

    async def main() -> None:
        mine = Mine(loop=asyncio.get_running_loop())
        assert asyncio.isfuture(mine)
        assert asyncio.ensure_future(mine) is mine

    run(main())


def test_asyncio_takes_them_for_its_own() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        task, future = asyncio.create_task(nothing()), loop.create_future()
        assert isinstance(task, asyncio.Task)
        assert isinstance(task, asyncio.Future)
        assert isinstance(future, asyncio.Future)
        assert not isinstance(future, asyncio.Task)
        assert asyncio.isfuture(task)
        assert asyncio.ensure_future(future) is future
        assert repr(task).startswith("<Task pending name='Task-")
        assert repr(future) == "<Future pending>"
        await task

    run(main())


def test_new_event_loop_refuses_another_kind_of_tasks() -> None:
    with pytest.raises(ValueError, match="cpython"):
        whorl.new_event_loop(tasks="fast")


def test_all_tasks_shows_ours_beside_cpythons() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours = asyncio.create_task(nothing())
        cpythons: asyncio.Task[None] = asyncio.Task(nothing(), loop=loop)
        assert asyncio.all_tasks() == {ours, cpythons, asyncio.current_task()}
        await ours
        await cpythons
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())


def test_tasks_may_be_made_while_the_registry_is_copied() -> None:
    registry = compiled_tasks_loop.TaskRegistry(range(10))

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code is compiled_tasks_loop.TaskRegistry.__iter__.__code__:
            frame.f_trace_opcodes = True
            registry.add(len(registry))  # as another thread may between any two opcodes
            return trace
        return None

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        copied = registry.copy()
    finally:
        sys.settrace(former)
    assert set(range(10)) < set(copied)


def test_all_tasks_shows_what_threads_make_while_the_first_loop_opens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registered: weakref.WeakSet[Any] = weakref.WeakSet()
    task = Unregistered()
    other_loop = threading.Thread(target=compiled_tasks_loop.show_tasks)
    copies: list[set[Any]] = []

    class SlowRegistry(compiled_tasks_loop.TaskRegistry):
        def __init__(self, former: set[Any]) -> None:
            super().__init__(former)
            copies.append(self)
            if len(copies) == 1:
                registered.add(task)
                other_loop.start()

    monkeypatch.setattr(compiled_tasks_loop, "_registry", lambda: registered)
    monkeypatch.setattr(compiled_tasks_loop, "TaskRegistry", SlowRegistry)
    compiled_tasks_loop.show_tasks()
    other_loop.join()
    assert task in registered
    assert copies == [registered.data]


def test_all_tasks_shows_those_of_the_loop_only() -> None:
    seen: list[Any] = []
    both_run = threading.Barrier(2, timeout=10)

    async def look() -> None:
        both_run.wait()
        seen.append(asyncio.all_tasks())
        both_run.wait()

    threads = [threading.Thread(target=run, args=(look(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(tasks) for tasks in seen] == [1, 1]
    assert seen[0] != seen[1]


def test_run_cancels_the_remaining_tasks_at_its_end() -> None:
    left: list[asyncio.Task[Any]] = []

    async def main() -> None:
        left.extend(asyncio.create_task(asyncio.sleep(3600)) for _ in range(3))
        await asyncio.sleep(0)

    run(main())
    assert all(task.cancelled() for task in left)


@pytest.mark.parametrize("kind", [asyncio.Task, Task])
@pytest.mark.parametrize("future_kind", [asyncio.Future, Future])
def test_tasks_of_either_kind_wait_for_futures_of_either_kind(kind: Any, future_kind: Any) -> None:
    async def wait_for(future: Any) -> Any:
        return await future

    async def main() -> None:
        loop = asyncio.get_running_loop()
        result, failure, cancelled = (future_kind(loop=loop) for _ in range(3))
        waiting = [kind(wait_for(one), loop=loop) for one in (result, failure, cancelled)]
        await asyncio.sleep(0)
        result.set_result("done")
        failure.set_exception(ValueError("no"))
        cancelled.cancel("enough")
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert outcomes[0] == "done"
        assert repr(outcomes[1]) == "ValueError('no')"
        assert isinstance(outcomes[2], asyncio.CancelledError)

    run(main())


def test_tasks_wake_in_the_order_in_which_they_waited() -> None:
    woken: list[int] = []

    async def wait(number: int, future: asyncio.Future[None]) -> None:
        await future
        woken.append(number)

    async def main() -> None:
        future = asyncio.get_running_loop().create_future()
        tasks = [asyncio.create_task(wait(number, future)) for number in range(5)]
        await asyncio.sleep(0)
        future.add_done_callback(lambda _: woken.append(99))
        future.set_result(None)
        await asyncio.gather(*tasks)

    run(main())
    assert woken == [0, 1, 2, 3, 4, 99]


def test_a_cancelled_timeout_ends_the_wait_for_a_future_of_ours() -> None:
    async def main() -> None:
        future = asyncio.get_running_loop().create_future()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await future
        assert future.cancelled()

    run(main())


def test_groups_queues_and_locks_run_on_them() -> None:
    async def main() -> list[int]:
        queue: asyncio.Queue[int] = asyncio.Queue(1)
        lock = asyncio.Lock()
        taken: list[int] = []

        async def give(numbers: range) -> None:
            for number in numbers:
                async with lock:
                    await queue.put(number)

        async def take() -> None:
            while len(taken) < 40:
                taken.append(await queue.get())

        async with asyncio.TaskGroup() as group:
            for start in range(4):
                group.create_task(give(range(start * 10, start * 10 + 10)))
            group.create_task(take())
        return taken

    assert sorted(run(main())) == list(range(40))


def test_a_task_that_nobody_refers_to_says_that_it_was_pending() -> None:
    reports: list[dict[str, Any]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reports.append(context))

        async def wait_for_ever() -> None:
            await loop.create_future()

        task = weakref.ref(asyncio.create_task(wait_for_ever()))
        await asyncio.sleep(0)
        gc.collect()
        assert len(reports) == 1
        assert "pending" in reports[0]["message"]
        reports.clear()
        gc.collect()
        assert task() is None

    run(main())


def test_an_exception_that_nobody_looked_at_is_reported() -> None:
    reports: list[dict[str, Any]] = []

    async def fail() -> None:
        raise ValueError("unseen")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
        task = asyncio.create_task(fail())
        await asyncio.sleep(0)
        del task
        gc.collect()

    run(main())
    assert [repr(report["exception"]) for report in reports] == ["ValueError('unseen')"]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_task_ends_the_run(interrupt: type[BaseException]) -> None:
    async def main() -> None:
        raise interrupt

    with pytest.raises(interrupt):
        run(main())


def test_a_finished_task_is_freed_at_once() -> None:
    async def main() -> None:
        task = asyncio.create_task(nothing())
        await task
        gone = weakref.ref(task)
        del task
        assert gone() is None

    gc.disable()
    try:
        run(main())
    finally:
        gc.enable()


@pytest.mark.parametrize("ending", [ValueError, asyncio.CancelledError, RuntimeError])
def test_a_failed_task_is_freed_with_the_last_that_refers_to_it(ending: type[BaseException]) -> None:
    """Its exception, whose traceback has frames, does not keep it."""

    async def fail() -> None:
        awaited = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(awaited.set_exception, ending("failed"))
        await awaited

    async def main() -> tuple[BaseException, Any]:
        task = asyncio.create_task(fail())
        (error,) = await asyncio.gather(task, return_exceptions=True)
        return error, weakref.ref(task)

    gc.disable()
    try:
        error, gone = run(main())
        assert type(error) is ending
        assert gone() is None
    finally:
        gc.enable()


def test_a_future_that_was_never_initialized_has_neither_a_result_nor_a_state_to_change() -> None:
    future: Future = Future.__new__(Future)
    for method in (future.result, future.exception, future.cancel, lambda: future.set_result(1)):
        with pytest.raises((RuntimeError, asyncio.InvalidStateError)):
            method()  # type: ignore[operator]
    with pytest.raises(AttributeError, match="nonsense"):
        _ = future.nonsense


def test_a_task_factory_comes_before_them() -> None:
    made: list[str] = []

    def factory(loop: Any, coro: Any, **options: Any) -> Any:
        made.append(coro.__name__)
        return asyncio.Task(coro, loop=loop, **options)

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(factory)
        task = asyncio.create_task(nothing(), name="made elsewhere")
        assert type(task) is asyncio.Task
        assert task.get_name() == "made elsewhere"
        await task

    run(main())
    assert made[0] == "nothing"


def test_an_eager_task_runs_up_to_its_first_wait_at_once() -> None:
    steps: list[str] = []

    async def work() -> str:
        steps.append(f"in {asyncio.current_task().get_name()}")  # type: ignore[union-attr]
        await asyncio.sleep(0)
        steps.append("resumed")
        return "result"

    async def main() -> None:
        task = Task(work(), loop=asyncio.get_running_loop(), name="eager", eager_start=True)
        assert steps == ["in eager"]
        assert asyncio.current_task() is not task
        assert task in asyncio.all_tasks()
        assert await task == "result"

    run(main())
    assert steps == ["in eager", "resumed"]


def test_a_step_that_runs_long_is_reported_with_its_task(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        asyncio.get_running_loop().slow_callback_duration = 0
        asyncio.current_task().set_name("dawdler")  # type: ignore[union-attr]
        await asyncio.sleep(0)

    run(main(), debug=True)
    assert any("dawdler" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("bad", [None, 1, "coroutine", nothing])
def test_create_task_refuses_a_non_coroutine(bad: object) -> None:
    async def main() -> None:
        with pytest.raises(TypeError, match="a coroutine was expected"):
            asyncio.get_running_loop().create_task(bad)  # type: ignore[arg-type]

    run(main())


def test_a_context_that_is_none_is_refused() -> None:
    async def main() -> None:
        coro = nothing()
        with pytest.raises(TypeError, match="Context was expected"):
            asyncio.get_running_loop().create_task(coro, context=3)  # type: ignore[arg-type]
        coro.close()

    run(main())


@pytest.mark.skipif(sys.version_info < (3, 15), reason="refused since Python 3.15")
def test_futures_and_tasks_refuse_a_second_initialization() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        future, task = loop.create_future(), asyncio.create_task(nothing())
        with pytest.raises(RuntimeError, match="Future object is already initialized"):
            future.__init__(loop=loop)  # type: ignore[misc]
        coro = nothing()
        with pytest.raises(RuntimeError, match="Task object is already initialized"):
            task.__init__(coro, loop=loop)  # type: ignore[misc]
        coro.close()
        await task

    run(main())


def test_a_closed_loop_makes_no_task() -> None:
    loop = whorl.new_event_loop(tasks="compiled")
    loop.close()
    coro = nothing()
    with pytest.raises(RuntimeError, match="closed"):
        loop.create_task(coro)
    coro.close()


def test_ten_thousand_tasks_run_to_their_end() -> None:
    async def add(numbers: list[int], number: int) -> None:
        await asyncio.sleep(0)
        numbers.append(number)

    async def main() -> None:
        numbers: list[int] = []
        await asyncio.gather(*(add(numbers, number) for number in range(10_000)))
        assert numbers == list(range(10_000))

    run(main())


def test_compiled_tasks_run_on_asyncios_own_loop() -> None:
    async def main() -> str:
        await asyncio.sleep(0)
        return "done"

    loop = asyncio.SelectorEventLoop()
    try:
        assert loop.run_until_complete(Task(main(), loop=loop)) == "done"
    finally:
        loop.close()


@pytest.mark.skipif(sys.version_info < (3, 14), reason="call graphs came with 3.14")
def test_a_call_graph_shows_who_waits_for_a_task() -> None:
    async def inner() -> None:
        await asyncio.sleep(0)

    async def outer(task: asyncio.Task[None]) -> None:
        await task

    async def main() -> None:
        task = asyncio.create_task(inner())
        waiting = asyncio.create_task(outer(task))
        await asyncio.sleep(0)
        graph = asyncio.capture_call_graph(task)  # type: ignore[attr-defined, unused-ignore]
        assert [parent.future for parent in graph.awaited_by] == [waiting]
        await waiting

    run(main())


async def _by_group(task: Any) -> None:
    async with asyncio.TaskGroup() as group:
        task.adopt(group)


async def _by_gather(task: Any) -> None:
    await asyncio.gather(task.start())


async def _by_shield(task: Any) -> None:
    await asyncio.shield(task.start())


async def _by_wait(task: Any) -> None:
    await asyncio.wait([task.start()])


async def _by_wait_for(task: Any) -> None:
    await asyncio.wait_for(task.start(), 3600)


async def _by_as_completed(task: Any) -> None:
    for each in asyncio.as_completed([task.start()]):
        await each


class _Child:
    """A task that the test lets end."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.task: Any = None

    def start(self) -> Any:
        """Start the task."""
        self.task = asyncio.create_task(self._run())
        return self.task

    def adopt(self, group: asyncio.TaskGroup) -> None:
        """Start it in a group."""
        self.task = group.create_task(self._run())

    async def _run(self) -> None:
        await self.may_end.wait()


@pytest.mark.skipif(sys.version_info < (3, 14), reason="call graphs came with 3.14")
@pytest.mark.parametrize("tasks", ["compiled", "cpython"])
@pytest.mark.parametrize(
    "wait", [_by_group, _by_gather, _by_shield, _by_wait, _by_wait_for, _by_as_completed]
)
def test_a_call_graph_shows_who_waits_by_a_function_of_asyncios(wait: Callable[..., Any], tasks: str) -> None:
    async def main() -> None:
        child = _Child()
        waiting = asyncio.create_task(wait(child))
        for _ in range(5):
            await asyncio.sleep(0)
        graph = asyncio.capture_call_graph(child.task)  # type: ignore[attr-defined, unused-ignore]
        assert [parent.future for parent in graph.awaited_by] == [waiting]
        child.may_end.set()
        await waiting
        assert not child.task._asyncio_awaited_by

    whorl.run(main(), tasks=tasks)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="call graphs came with 3.14")
@pytest.mark.parametrize("tasks", ["compiled", "cpython"])
def test_a_call_graph_shows_no_gather_that_has_ended(tasks: str) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    async def main() -> None:
        child = _Child()
        with pytest.raises(ZeroDivisionError):
            await asyncio.gather(child.start(), fail())
        assert not child.task._asyncio_awaited_by
        child.may_end.set()
        await child.task

    whorl.run(main(), tasks=tasks)


def test_many_collections_of_pending_tasks_leave_the_registry_whole() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, __: None)
        make: Callable[[], Any] = loop.create_future

        async def wait_for_ever() -> None:
            await make()

        for _ in range(5):
            tasks = [asyncio.create_task(wait_for_ever()) for _ in range(50)]
            await asyncio.sleep(0)
            del tasks[::2]
            gc.collect()
            assert len(asyncio.all_tasks()) == 26
            del tasks
            gc.collect()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())


def test_steps_do_not_ask_for_a_call_soon_of_a_subclass() -> None:
    def calls_of(kind: type[asyncio.AbstractEventLoop]) -> list[str]:
        made: list[str] = []

        class Counting(kind):  # type: ignore[misc, valid-type]
            def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
                made.append(getattr(callback, "__qualname__", type(callback).__name__))
                return super().call_soon(callback, *args, context=context)

        async def main() -> None:
            made.clear()
            for _ in range(5):
                await asyncio.sleep(0)
            made.append("end")

        with asyncio.Runner(loop_factory=Counting) as runner:
            runner.run(main())
        return made[: made.index("end")]

    assert len(calls_of(whorl.EventLoop)) == 5
    assert calls_of(CompiledTasksEventLoop) == []
