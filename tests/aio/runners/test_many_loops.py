"""Several loops at once, each in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import whorl
from whorl.aio.runners import many_loops


@pytest.fixture(autouse=True)
def no_warning(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the GIL be known already: it is the business of two tests alone."""
    monkeypatch.setattr(many_loops, "_has_warned", True)
    yield
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("whorl-loop")]


class Meeting:
    """Waits until so many loops have come; each is woken in its own thread."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        own = asyncio.get_running_loop().create_future()
        with self._lock:
            self._waiting.append(own)
            all_are_here = len(self._waiting) == self._count
        if all_are_here:
            for future in self._waiting:
                with contextlib.suppress(RuntimeError):  # Its loop may have ended.
                    future.get_loop().call_soon_threadsafe(self._wake, future)
        await own

    @staticmethod
    def _wake(future: asyncio.Future[None]) -> None:
        if not future.done():
            future.set_result(None)


def test_results_come_in_the_order_of_the_indexes() -> None:
    meeting = Meeting(3)

    async def main(index: int) -> int:
        await meeting.wait()
        return 10 * index

    assert whorl.run_loops(main, 3) == [0, 10, 20]


def test_each_loop_runs_in_a_thread_of_its_own_and_the_first_in_the_callers() -> None:
    meeting = Meeting(3)

    async def main(index: int) -> tuple[int, asyncio.AbstractEventLoop]:
        await meeting.wait()
        return threading.get_ident(), asyncio.get_running_loop()

    found = whorl.run_loops(main, 3)
    assert len({thread for thread, _ in found}) == len({id(loop) for _, loop in found}) == 3
    assert found[0][0] == threading.get_ident()
    assert all(isinstance(loop, whorl.EventLoop) and loop.is_closed() for _, loop in found)


def test_a_loop_runs_for_each_core_that_the_process_may_use() -> None:
    async def main(index: int) -> int:
        return index

    assert whorl.run_loops(main) == list(range(len(os.sched_getaffinity(0))))


def test_options_are_those_of_a_run() -> None:
    async def main(index: int) -> Any:
        return type(asyncio.current_task()), asyncio.get_running_loop().get_debug()

    kind = type(whorl.run(main(0), tasks="compiled")[0])
    assert isinstance(kind, type)
    found = whorl.run_loops(main, 2, debug=True, tasks="compiled")
    assert {debug for _, debug in found} == {True}
    assert {kind.__module__ for kind, _ in found} == {"whorl.aio.futures.task"}
    with pytest.raises(TypeError, match="options are for loops"):
        whorl.run_loops(main, 2, loop_factory=asyncio.new_event_loop, tasks="compiled")


@pytest.mark.parametrize("has_gil", [False, True])
def test_tasks_are_whorls_own_where_those_of_cpython_share_a_dictionary(
    monkeypatch: pytest.MonkeyPatch, expected_build: str, has_gil: bool
) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: has_gil, raising=False)

    async def main(index: int) -> str:
        return type(asyncio.current_task()).__module__

    share = expected_build == "compiled" and sys.version_info < (3, 14) and not has_gil
    kind = "whorl.aio.futures.task" if share else "_asyncio"
    assert whorl.run_loops(main, 2) == [kind] * 2
    assert whorl.run_loops(main, 2, tasks="cpython") == ["_asyncio"] * 2
    assert whorl.run_loops(main, 2, loop_factory=whorl.EventLoop) == ["_asyncio"] * 2
    for factory in (whorl.server_loop, whorl.EventLoopPolicy().new_event_loop):
        with asyncio.Runner(loop_factory=factory) as runner:
            assert runner.run(main(0)) == kind


def test_a_loop_factory_makes_each_loop() -> None:
    made: list[asyncio.AbstractEventLoop] = []

    def factory() -> asyncio.AbstractEventLoop:
        made.append(whorl.new_event_loop())
        return made[-1]

    async def main(index: int) -> bool:
        return asyncio.get_running_loop() in made

    assert whorl.run_loops(main, 2, loop_factory=factory) == [True, True]
    assert len(made) == 2


def test_each_loop_has_a_copy_of_the_callers_context() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
    variable.set(5)

    async def main(index: int) -> int:
        variable.set(variable.get() + index)
        return variable.get()

    assert whorl.run_loops(main, 3) == [5, 6, 7]
    assert variable.get() == 5


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_error_of_one_loop_cancels_the_others_and_is_raised(failing: int) -> None:
    meeting = Meeting(3)
    ended: list[int] = []

    async def main(index: int) -> None:
        try:
            await meeting.wait()
            if index == failing:
                raise LookupError(index)
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)
            ended.append(index)

    with pytest.raises(LookupError, match=str(failing)):
        whorl.run_loops(main, 3)
    assert sorted(ended) == [0, 1, 2]


def test_an_error_before_the_others_have_begun_keeps_them_from_beginning() -> None:
    async def main(index: int) -> None:
        if index == 0:
            raise LookupError
        await asyncio.get_running_loop().create_future()

    for _ in range(20):
        with pytest.raises(LookupError):
            whorl.run_loops(main, 3)


def test_a_later_error_is_a_note_of_the_first() -> None:
    meeting = Meeting(2)

    async def main(index: int) -> None:
        try:
            await meeting.wait()
            if index == 1:
                await asyncio.get_running_loop().create_future()
        finally:
            raise (LookupError("first"), ArithmeticError("second"))[index]

    with pytest.raises(LookupError, match="first") as caught:
        whorl.run_loops(main, 2)
    assert caught.value.__notes__ == ["Then loop 1 raised ArithmeticError('second')."]


def test_a_loop_that_cancels_itself_ends_the_others() -> None:
    async def main(index: int) -> None:
        if index == 1:
            raise asyncio.CancelledError
        await asyncio.get_running_loop().create_future()

    with pytest.raises(asyncio.CancelledError):
        whorl.run_loops(main, 2)


def test_an_interrupt_ends_all_loops_in_order() -> None:
    meeting = Meeting(3)
    ended: list[int] = []

    async def main(index: int) -> None:
        try:
            await meeting.wait()
            if index == 1:
                interrupt()
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(index)

    with pytest.raises(KeyboardInterrupt):
        whorl.run_loops(main, 3)
    assert sorted(ended) == [0, 1, 2]


def test_an_interrupt_while_the_first_loop_waits_for_the_others_ends_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meeting = Meeting(3)
    waits = threading.Event()
    ended: list[int] = []

    class AwaitedEvent(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if timeout == many_loops.LONGEST_WAIT:
                waits.set()
            return super().wait(timeout)

    async def main(index: int) -> None:
        try:
            await meeting.wait()
            if index == 1:
                assert await asyncio.to_thread(waits.wait, 60)
                interrupt()
            if index > 0:
                await asyncio.get_running_loop().create_future()
        finally:
            ended.append(index)

    monkeypatch.setattr(threading, "Event", AwaitedEvent)
    with pytest.raises(KeyboardInterrupt):
        whorl.run_loops(main, 3)
    assert sorted(ended) == [0, 1, 2]


def interrupt() -> None:
    """Interrupt the main thread, as Ctrl-C does."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def test_a_running_loop_cannot_run_others() -> None:
    async def main(index: int) -> None:
        with pytest.raises(RuntimeError, match="running event loop"):
            whorl.run_loops(main, 2)

    whorl.run(main(0))


def test_no_loop_is_refused() -> None:
    async def main(index: int) -> None:
        """Do nothing."""

    with pytest.raises(ValueError, match="at least one loop"):
        whorl.run_loops(main, 0)


def test_a_python_with_a_gil_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_loops, "_has_warned", False)
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)

    async def main(index: int) -> int:
        return index

    assert whorl.run_loops(main, 1) == [0]  # which needs no other core
    with pytest.warns(RuntimeWarning, match="take turns") as caught:
        assert whorl.run_loops(main, 2) == [0, 1]
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert whorl.run_loops(main, 2) == [0, 1]


def test_a_python_without_a_gil_does_not_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_loops, "_has_warned", False)
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)

    async def main(index: int) -> int:
        return index

    assert whorl.run_loops(main, 2) == [0, 1]
    assert not many_loops._has_warned
