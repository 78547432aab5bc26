"""The running task of a loop with Whorl's tasks: who asks finds it, whichever way and thread it is."""

from __future__ import annotations

import asyncio
import sys
import sysconfig
import threading
from asyncio import tasks
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any

import pytest

import whorl
from whorl.aio.futures.task import Task
from whorl.aio.runners.compiled_tasks_loop import CompiledTasksEventLoop

KEEPS_TASK = whorl.compiled and sysconfig.get_config_var("Py_GIL_DISABLED") and sys.version_info < (3, 14)
HAS_DICTIONARY = sys.version_info < (3, 14)
with_dictionary = pytest.mark.skipif(not HAS_DICTIONARY, reason="CPython keeps it for each thread")


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return whorl.run(main, tasks="compiled")


def in_thread(call: Callable[[], Any]) -> Any:
    """Call a function in another thread, while the calling step waits for it."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join()
    return results[0]


def dictionary() -> dict[Any, Any]:
    """Return asyncio's dictionary of running tasks."""
    found: dict[Any, Any] = tasks._current_tasks  # type: ignore[attr-defined]
    return found


def test_each_step_has_its_task_and_none_is_left_between_steps() -> None:
    between: list[Any] = []

    async def look(times: int) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(times):
            own = asyncio.current_task()
            assert own is asyncio.current_task(loop)
            assert own.get_coro().cr_frame is sys._getframe()  # type: ignore[union-attr]
            loop.call_soon(lambda: between.append(asyncio.current_task(loop)))
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(look(times) for times in range(1, 20)))

    run(main())
    assert len(between) == sum(range(1, 20))
    assert set(between) == {None}


@with_dictionary
def test_another_thread_finds_the_task_of_a_step_that_waits_for_it() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(3):
            task = asyncio.current_task()
            assert in_thread(lambda: asyncio.current_task(loop)) is task
            await asyncio.sleep(0)
            assert in_thread(lambda: dictionary().get(loop)) is task
            assert in_thread(lambda: asyncio.current_task(loop)) is task
            await asyncio.sleep(0)

    run(main())
    assert dictionary() == {}


@pytest.mark.skipif(not KEEPS_TASK, reason="each step enters the dictionary, or there is none")
def test_a_step_leaves_the_dictionary_alone_until_somebody_looks() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(3):
            assert len(dictionary()) == 0
            assert dictionary()[loop] is asyncio.current_task()
            assert len(dictionary()) == 1
            await asyncio.sleep(0)

    run(main())
    assert len(dictionary()) == 0


@with_dictionary
def test_a_second_task_cannot_enter_during_a_step() -> None:
    async def other() -> None:
        pass

    async def main() -> None:
        loop = asyncio.get_running_loop()
        coro = other()
        task: asyncio.Task[None] = asyncio.Task(coro, loop=loop)
        with pytest.raises(RuntimeError, match="Cannot enter into task"):
            tasks._enter_task(loop, task)  # type: ignore[attr-defined]
        with pytest.raises(RuntimeError, match="does not match the current task"):
            tasks._leave_task(loop, task)  # type: ignore[attr-defined]
        assert asyncio.current_task() is not task
        await task

    run(main())


@with_dictionary
def test_a_step_of_a_loop_with_a_task_of_asyncios_own_is_refused() -> None:
    """A step begins in the place of another one, as when a program runs turns inside of a task."""
    problems: list[dict[str, Any]] = []

    async def step() -> None:
        pass

    loop = whorl.new_event_loop(tasks="compiled")
    loop.set_exception_handler(lambda _, context: problems.append(context))
    other = object()
    tasks._enter_task(loop, other)  # type: ignore[attr-defined]
    task = loop.create_task(step())
    loop.call_later(0.001, loop.stop)
    loop.run_forever()
    tasks._leave_task(loop, other)  # type: ignore[attr-defined]
    assert "Cannot enter into task" in str(problems[0]["exception"])
    loop.run_until_complete(loop.create_task(step()))
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    task.get_coro().close()  # type: ignore[union-attr]
    loop.close()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with 3.12")
def test_an_eager_task_is_the_current_one_until_its_first_wait() -> None:
    async def begin(seen: list[Any]) -> None:
        seen.append(asyncio.current_task())
        await asyncio.sleep(0)
        seen.append(asyncio.current_task())

    async def main() -> None:
        own, seen = asyncio.current_task(), []  # type: ignore[var-annotated]
        task = Task(begin(seen), loop=asyncio.get_running_loop(), eager_start=True)
        assert seen == [task]
        assert asyncio.current_task() is own
        await task  # type: ignore[misc]
        assert seen == [task, task]

    run(main())


def test_a_loop_with_a_hash_of_its_own_has_its_task() -> None:
    class Loop(CompiledTasksEventLoop):
        """Hashes as no loop of ours does."""

        def __hash__(self) -> int:
            return 7

    async def main() -> None:
        for _ in range(3):
            assert type(asyncio.current_task()) is Task
            await asyncio.sleep(0)

    loop = Loop()
    assert hash(loop) == 7
    loop.run_until_complete(main())
    loop.close()
    assert asyncio.current_task(loop) is None


def test_a_task_that_is_initialized_again_during_its_step_leaves_its_loop_and_context() -> None:
    other = asyncio.new_event_loop()
    variable: ContextVar[int] = ContextVar("variable")
    problems: list[dict[str, Any]] = []

    async def main() -> None:
        variable.set(1)
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        with pytest.raises((TypeError, RuntimeError)):  # It is refused from 3.14 on.
            task.__init__(None, loop=other)  # type: ignore[misc, arg-type]
        loop.call_soon(loop.stop)

    loop = whorl.new_event_loop(tasks="compiled")
    loop.create_task(main())
    loop.set_exception_handler(lambda _, context: problems.append(context))
    loop.run_forever()
    assert asyncio.current_task(loop) is None
    assert variable.get(None) is None
    assert problems == []
    loop.close()
    other.close()


def test_a_task_whose_repr_fails_is_reported_by_its_class() -> None:
    class Refusing:
        """A future of no loop that can be waited for."""

        _asyncio_future_blocking = False

        def get_loop(self) -> Any:
            return loop

        def add_done_callback(self, *_: Any, **__: Any) -> None:
            raise ValueError("refused")

        def __await__(self) -> Any:
            self._asyncio_future_blocking = True
            yield self

    class Unshown(Task):
        """Cannot be shown."""

        def __repr__(self) -> str:
            raise TypeError("not shown")

    async def main() -> None:
        loop.call_soon(loop.stop)
        await Refusing()

    problems: list[dict[str, Any]] = []
    loop = whorl.new_event_loop(tasks="compiled")
    loop.set_exception_handler(lambda _, context: problems.append(context))
    task = Unshown(main(), loop=loop)
    loop.run_forever()
    task._log_destroy_pending = False
    loop.close()
    (problem,) = problems
    assert str(problem["exception"]) == "refused"
    assert problem["message"].startswith("Exception in <")
    assert "Unshown object at" in problem["message"]


def test_a_loop_is_hashed_as_any_object_is() -> None:
    async def main() -> int:
        return hash(asyncio.get_running_loop())

    loop = whorl.new_event_loop(tasks="compiled")
    assert loop.run_until_complete(main()) == hash(loop) == object.__hash__(loop) == loop.__hash__()
    loop.close()


@with_dictionary
def test_threads_that_look_all_the_time_find_a_task_of_the_loop_or_none() -> None:
    found: set[Any] = set()
    ended = threading.Event()
    began = threading.Barrier(3)

    async def step(times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(0)

    async def main() -> None:
        began.wait()
        for _ in range(200):  # Each of these is freed soon after its last step.
            await asyncio.gather(*(step(5) for _ in range(10)))

    loop = whorl.new_event_loop(tasks="compiled")

    def look() -> None:
        began.wait()
        while not ended.is_set():
            task = asyncio.current_task(loop)
            found.add(task if task is None else type(task))

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    loop.run_until_complete(main())
    ended.set()
    for thread in threads:
        thread.join()
    loop.close()
    assert found <= {None, Task}
    assert loop not in dictionary()
