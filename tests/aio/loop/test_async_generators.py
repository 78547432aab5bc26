"""The ends of a loop that has nothing to shut down: no turn, unless a turn would do something."""

from __future__ import annotations

import asyncio
import gc
import os
import selectors
import signal
import subprocess
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import pytest

import whorl
from tests.aio.compare_with_asyncio import error_as_in_asyncio, is_as_in_asyncio
from whorl.core.probe import Probe
from whorl.handles import Idle, Timer

pytestmark = pytest.mark.usefixtures("no_leak")

ENDINGS = ["shutdown_asyncgens", "shutdown_default_executor"]


@pytest.fixture(params=ENDINGS)
def ending(request: pytest.FixtureRequest) -> str:
    """Return the name of a method that shuts down a part of the loop."""
    name: str = request.param
    return name


@pytest.fixture(params=["cpython", "compiled"])
def ended(request: pytest.FixtureRequest) -> Iterator[whorl.EventLoop]:
    """Yield a loop that has run and that is only closed after the test."""
    loop = whorl.new_event_loop(tasks=request.param)
    loop.run_until_complete(asyncio.sleep(0))
    yield loop
    loop.close()


def turns_of(loop: whorl.EventLoop, ending: str) -> int:
    """Return the number of turns that this shutdown takes."""
    before = loop.metrics().turns
    assert loop.run_until_complete(getattr(loop, ending)()) is None
    return loop.metrics().turns - before


def test_shutdown_of_an_unused_loop_takes_no_turn(ended: whorl.EventLoop, ending: str) -> None:
    assert turns_of(ended, ending) == 0
    assert turns_of(ended, ending) == 0
    assert not ended.is_running()


def test_shutdown_without_a_turn_takes_effect(ended: whorl.EventLoop) -> None:
    async def use_executor() -> None:
        with pytest.raises(RuntimeError, match="Executor shutdown has been called"):
            ended.run_in_executor(None, list)

    async def use_generator() -> None:
        async def numbers() -> Any:
            yield 1

        async for _ in numbers():
            pass

    for ending in ENDINGS:
        assert turns_of(ended, ending) == 0
    ended.run_until_complete(use_executor())
    with pytest.warns(ResourceWarning, match=r"was scheduled after loop\.shutdown_asyncgens\(\) call"):
        ended.run_until_complete(use_generator())


def test_a_coroutine_that_was_run_without_a_turn_cannot_be_run_again(ending: str) -> None:
    def run_twice(loop: Any) -> None:
        coroutine = getattr(loop, ending)()
        loop.run_until_complete(coroutine)
        loop.run_until_complete(coroutine)

    assert error_as_in_asyncio(run_twice) == (RuntimeError, "cannot reuse already awaited coroutine")


def test_a_coroutine_that_somebody_has_begun_is_none_that_can_be_left_out(ending: str) -> None:
    def run_begun(loop: Any) -> None:
        coroutine = getattr(loop, ending)()
        with pytest.raises(StopIteration):
            coroutine.send(None)
        loop.run_until_complete(coroutine)

    assert error_as_in_asyncio(run_begun) == (RuntimeError, "cannot reuse already awaited coroutine")


def test_the_coroutine_of_another_loop_is_run(ended: whorl.EventLoop, ending: str) -> None:
    other = whorl.EventLoop()
    before = ended.metrics().turns
    ended.run_until_complete(getattr(other, ending)())
    assert ended.metrics().turns > before
    assert (other._asyncgens_shutdown_called, other._executor_shutdown_called) == (
        ending == "shutdown_asyncgens",
        ending == "shutdown_default_executor",
    )
    assert not ended._asyncgens_shutdown_called
    assert not ended._executor_shutdown_called
    other.close()


def test_refusals_are_those_of_every_run(ending: str) -> None:
    def run_closed(loop: Any) -> None:
        loop.close()
        coroutine = getattr(loop, ending)()
        try:
            loop.run_until_complete(coroutine)
        finally:
            coroutine.close()

    def run_inside(loop: Any) -> None:
        async def inside() -> None:
            coroutine = getattr(loop, ending)()
            try:
                loop.run_until_complete(coroutine)
            finally:
                coroutine.close()

        loop.run_until_complete(inside())

    assert error_as_in_asyncio(run_closed) == (RuntimeError, "Event loop is closed")
    assert error_as_in_asyncio(run_inside) == (RuntimeError, "This event loop is already running")


def test_shutdown_runs_ready_callbacks(ending: str) -> None:
    def schedule(loop: Any) -> list[str]:
        seen: list[str] = []
        loop.call_soon(seen.append, "soon")
        loop.run_until_complete(getattr(loop, ending)())
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(seen.append, "posted"))
        thread.start()
        thread.join()
        loop.run_until_complete(getattr(loop, ending)())
        loop.call_later(0, seen.append, "due")
        loop.run_until_complete(getattr(loop, ending)())
        task = loop.create_task(asyncio.sleep(0))
        loop.run_until_complete(getattr(loop, ending)())
        return [*seen, "done" if task.done() else "pending"]

    assert is_as_in_asyncio(schedule) == ["soon", "posted", "due", "done"]


def test_shutdown_runs_callbacks_of_readable_descriptors(ending: str) -> None:
    def watch(loop: Any) -> list[str]:
        seen: list[str] = []
        read_end, write_end = os.pipe()
        loop.add_reader(read_end, seen.append, "readable")
        os.write(write_end, b"x")
        loop.run_until_complete(getattr(loop, ending)())
        loop.remove_reader(read_end)
        os.close(read_end)
        os.close(write_end)
        return seen[:1]

    assert is_as_in_asyncio(watch) == ["readable"]


def test_a_signal_is_handled_meanwhile(ending: str) -> None:
    def handle(loop: Any) -> list[str]:
        seen: list[str] = []
        loop.add_signal_handler(signal.SIGUSR1, seen.append, "signal")
        signal.raise_signal(signal.SIGUSR1)
        loop.run_until_complete(getattr(loop, ending)())
        loop.run_until_complete(asyncio.sleep(0))
        loop.remove_signal_handler(signal.SIGUSR1)
        return seen

    assert is_as_in_asyncio(handle) == ["signal"]


def stop(loop: Any) -> Callable[[], object]:
    loop.stop()
    return loop.run_forever  # type: ignore[no-any-return]  # the end of the run that is awaited stops once more


def idle(loop: Any) -> Callable[[], object]:
    handle = Idle(loop)
    handle.start(lambda handle: None)
    return handle.close


def timer(loop: Any) -> Callable[[], object]:
    handle = Timer(loop)
    handle.start(lambda handle: None, 10**12)
    return handle.close


def later(loop: Any) -> Callable[[], object]:
    return loop.call_later(1000, list).cancel  # type: ignore[no-any-return]


def pool(loop: Any) -> Callable[[], object]:
    loop.set_default_executor(ThreadPoolExecutor(1))
    return lambda: loop.run_until_complete(loop.shutdown_default_executor())


def debug(loop: Any) -> Callable[[], object]:
    loop.set_debug(True)
    return lambda: loop.set_debug(False)


def probe(loop: Any) -> Callable[[], object]:
    loop.set_probe(Probe())
    return lambda: loop.set_probe(None)


def factory(loop: Any) -> Callable[[], object]:
    loop.set_task_factory(lambda loop, coro, **options: asyncio.Task(coro, loop=loop, **options))
    return lambda: loop.set_task_factory(None)


def own_clock(loop: Any) -> Callable[[], object]:
    loop.time = lambda: 5.0
    return lambda: delattr(loop, "time")


def own_method(loop: Any) -> Callable[[], object]:
    loop.create_task = type(loop).create_task.__get__(loop)
    return lambda: delattr(loop, "create_task")


def method_of_the_class(loop: Any) -> Callable[[], object]:
    kind = type(loop)
    patch = mock.patch.object(kind, "call_soon", lambda self, *args, **options: soon(self, *args, **options))
    soon = kind.call_soon
    patch.start()
    return patch.stop


def handles_run_by_others(loop: Any) -> Callable[[], object]:
    patch = mock.patch.object(asyncio.Handle, "_run", lambda handle: run(handle))
    run: Any = asyncio.Handle._run
    patch.start()
    return patch.stop


@pytest.mark.parametrize(
    "something",
    [
        stop,
        idle,
        timer,
        later,
        pool,
        debug,
        probe,
        factory,
        own_clock,
        own_method,
        method_of_the_class,
        handles_run_by_others,
    ],
)
def test_a_loop_that_has_something_takes_its_turns(
    ended: whorl.EventLoop, ending: str, something: Callable[[Any], Callable[[], object]]
) -> None:
    end = something(ended)
    assert turns_of(ended, ending) >= 1
    end()
    ended.run_until_complete(asyncio.sleep(0))
    assert turns_of(ended, ending) == 0 or something is pool


@pytest.mark.parametrize("poller", ["io_uring", selectors.SelectSelector])
def test_shutdown_takes_a_turn_on_other_pollers_than_epoll(ending: str, poller: Any) -> None:
    loop = whorl.EventLoop(poller=poller if isinstance(poller, str) else poller())
    if not loop.poller_name().startswith("epoll"):
        assert turns_of(loop, ending) >= 1
    loop.close()


def test_the_loop_of_a_subclass_takes_its_turns(ending: str) -> None:
    class Subclass(whorl.EventLoop):
        pass

    loop = Subclass()
    assert turns_of(loop, ending) >= 1
    loop.close()


def test_a_generator_that_was_begun_is_closed() -> None:
    def leave_one(loop: Any) -> list[str]:
        ended: list[str] = []

        async def numbers() -> Any:
            try:
                yield 1
                yield 2
            finally:
                ended.append("closed")

        async def begin() -> None:
            await kept.__anext__()

        kept = numbers()
        loop.run_until_complete(begin())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.run_until_complete(loop.shutdown_asyncgens())
        return list(ended)

    assert is_as_in_asyncio(leave_one) == ["closed"]


def test_shutdown_without_a_turn_leaves_no_warning_and_no_reference(ending: str) -> None:
    loop = whorl.EventLoop()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no coroutine was never awaited
        coroutine = getattr(loop, ending)()
        gone = weakref.ref(coroutine)
        loop.run_until_complete(coroutine)
        del coroutine
        assert gone() is None
        reference = weakref.ref(loop)
        loop.close()
        gc.disable()
        try:
            del loop
            assert reference() is None
        finally:
            gc.enable()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no forks")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_is_refused(ending: str) -> None:
    loop = whorl.EventLoop()
    if (child := os.fork()) == 0:
        status = 1
        try:
            coroutine = getattr(loop, ending)()
            try:
                loop.run_until_complete(coroutine)
            except RuntimeError:
                status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    loop.close()


@pytest.mark.parametrize("make", ["whorl.EventLoop()", "whorl.Loop()"])
def test_a_loop_that_is_left_open_when_the_interpreter_ends_says_nothing(make: str) -> None:
    program = f"import asyncio, whorl; asyncio.loop = {make}"
    if "Event" in make:
        program += "; asyncio.set_event_loop(asyncio.loop)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stderr == ""
