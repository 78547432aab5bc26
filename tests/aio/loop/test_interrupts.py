"""Errors at the beginning and at the end of a run: afterwards this loop can run again, and any other one."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

import whorl
from whorl.aio.runners.driver import Driver
from whorl.core import Host, Kernel, Loop

pytestmark = pytest.mark.usefixtures("no_leak")

FOLDER = os.path.dirname(whorl.__file__)
#: The functions that begin and end runs. Compiled, most of them have no frames, but the functions that they
#: call have.
BEGINS_OR_ENDS = {
    "_begin_run", "_end_run", "_leave", "refresh_overrides", "patched_run", "is_main_thread", "wants_signals"
}  # fmt: skip


async def answer() -> int:
    await asyncio.sleep(0)
    return 42


def run_once(loop: Any) -> None:
    loop.stop()
    loop.run_forever()


def run_coroutine(loop: Any) -> None:
    assert loop.run_until_complete(answer()) == 42


def run_as_machine(loop: Any) -> None:
    loop.run()


def drive(loop: Any) -> None:
    with Driver(loop) as driver:
        driver.step()


RUNS = pytest.mark.parametrize("run", [run_once, run_coroutine, run_as_machine, drive])


@contextlib.contextmanager
def leaving_nothing_behind(loop: Any) -> Iterator[None]:
    """Check that the loop and the thread are as before, and that this loop and another one can run."""
    hooks, depth = sys.get_asyncgen_hooks(), sys.get_coroutine_origin_tracking_depth()
    yield
    assert asyncio._get_running_loop() is None
    assert not loop.is_running()
    assert sys.get_asyncgen_hooks() == hooks
    assert sys.get_coroutine_origin_tracking_depth() == depth
    for each in (loop, whorl.EventLoop()):
        run_coroutine(each)
        if each is not loop:
            each.close()
    assert signal.set_wakeup_fd(-1) == -1


class Interrupting:
    """A trace function that raises, once, when so many steps that begin or end a run have been made."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, frame: FrameType, event: str, argument: object) -> Interrupting | None:
        if not frame.f_code.co_filename.startswith(FOLDER) or self.left < 0:
            return None
        outer: FrameType | None = frame
        while outer is not None and outer.f_code.co_name not in BEGINS_OR_ENDS:
            outer = outer.f_back
        if outer is not None and event != "exception":
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
        return self


@RUNS
@pytest.mark.parametrize("debug", [False, True])
def test_an_interrupt_at_any_step_that_begins_or_ends_a_run_leaves_nothing_behind(
    run: Callable[[Any], None], debug: bool
) -> None:
    loop = whorl.EventLoop()
    loop.set_debug(debug)
    run_once(loop)  # so that there is a signal pipe to be given back
    former = sys.gettrace()
    steps = 0
    while True:
        interrupting = Interrupting(steps)
        with leaving_nothing_behind(loop):
            sys.settrace(interrupting)
            try:
                run(loop)
            except KeyboardInterrupt:
                steps += 1
            else:
                assert interrupting.left >= 0, "an interrupt was swallowed"
                break
            finally:
                sys.settrace(former)
    loop.close()
    assert steps > 5


class Calls:
    """Counts the beginnings and the ends of calls, and raises at one of them."""

    def __init__(self) -> None:
        self.left = -1

    def count(self) -> None:
        self.left -= 1
        if self.left == -1:
            raise KeyboardInterrupt


class CountingKernel(Kernel):
    """A kernel that counts the reads of the clock."""

    calls: Calls

    def now(self) -> int:
        if not hasattr(self, "calls"):
            return super().now()
        self.calls.count()
        now = super().now()
        self.calls.count()
        return now


class CountingHost(Host):
    """A host that counts its calls."""

    calls: Calls

    def is_main_thread(self) -> bool:
        self.calls.count()
        return super().is_main_thread()

    def set_wakeup_fd(self, fd: int) -> int:
        self.calls.count()
        former = super().set_wakeup_fd(fd)
        self.calls.count()
        return former


class CountingLoop(whorl.EventLoop):
    """A loop that counts the calls that a run makes."""

    calls: Calls

    def _wants_signals(self) -> bool:
        self.calls.count()
        return super()._wants_signals()

    @property
    def _asyncgen_firstiter_hook(self) -> Any:  # type: ignore[override]
        self.calls.count()
        return super()._asyncgen_firstiter_hook


@pytest.mark.parametrize("run", [run_once, run_as_machine, drive])
def test_an_interrupt_in_what_a_run_calls_leaves_nothing_behind(run: Callable[[Any], None]) -> None:
    calls = CountingHost.calls = CountingLoop.calls = Calls()
    kernel = CountingKernel()
    loop = CountingLoop(kernel=kernel, host=CountingHost())  # type: ignore[abstract]
    kernel.calls = calls
    interrupts = 0
    while True:
        with leaving_nothing_behind(loop):
            calls.left = interrupts
            try:
                run(loop)
            except KeyboardInterrupt:
                interrupts += 1
            else:
                assert calls.left >= 0, "an interrupt was swallowed"
                break
            finally:
                calls.left = -1
    loop.close()
    assert interrupts > 3


def test_an_error_that_the_end_of_a_run_meets_again_and_again_is_raised_and_the_loop_does_not_run() -> None:
    class Failing(whorl.EventLoop):
        fails = False

        def _wants_signals(self) -> bool:
            if self.fails and not self.is_running():
                raise LookupError
            return super()._wants_signals()

    loop = Failing()  # type: ignore[abstract]
    loop.fails = True
    with leaving_nothing_behind(loop):
        with pytest.raises(LookupError):
            run_once(loop)
        loop.fails = False
    loop.close()


@pytest.mark.parametrize("debug", [False, True])
def test_a_signal_handler_that_raises_at_the_end_of_a_run_leaves_nothing_behind(debug: bool) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    raise_signal = ctypes.CDLL(None)["raise"]  # in C: the handler runs with the next bytecode, in the end
    loop = whorl.EventLoop()
    loop.set_debug(debug)
    former = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with leaving_nothing_behind(loop):
            soon = loop.time() + 0.001  # so that the loop sleeps once, and has a signal pipe to give back
            loop.call_at(soon, loop.stop)
            loop.call_at(soon, raise_signal, int(signal.SIGUSR1))
            with pytest.raises(KeyboardInterrupt):
                loop.run_forever()
    finally:
        signal.signal(signal.SIGUSR1, former)
    loop.close()


def test_a_run_that_is_refused_leaves_the_one_that_is_under_way(loop: whorl.EventLoop) -> None:
    other = whorl.EventLoop()

    async def run_others() -> None:
        hooks = sys.get_asyncgen_hooks()
        own = (loop.run_forever, loop.run, loop._run_forever_setup, lambda: Driver(loop))
        for run in (*own, other.run_forever, other.run, other._run_forever_setup):
            with pytest.raises(RuntimeError):
                run()
            assert asyncio.get_running_loop() is loop
            assert loop.is_running()
            assert not other.is_running()
            assert sys.get_asyncgen_hooks() == hooks
            await asyncio.sleep(0)

    loop.run_until_complete(run_others())
    other.close()


def test_a_closed_loop_that_is_run_stays_as_it_is() -> None:
    for loop in (whorl.EventLoop(), Loop()):
        loop.close()
        with pytest.raises(RuntimeError, match="closed"):
            loop.run()
        assert not loop.is_running()


RUN_WITHOUT_MEMORY = """
import asyncio, sys
import _testcapi, whorl

async def answer():
    return 42

def run(loop):
    loop.stop()
    loop.run_forever()

loop, hooks, failed = whorl.EventLoop(), sys.get_asyncgen_hooks(), 0
run(loop)
for refused in range(int(sys.argv[1])):
    try:
        _testcapi.set_nomemory(refused, refused + 1)
        try:
            run(loop)
        finally:
            _testcapi.remove_mem_hooks()
    except MemoryError:
        failed += 1
    assert asyncio._get_running_loop() is None, refused
    assert not loop.is_running(), refused
    assert sys.get_asyncgen_hooks() == hooks, refused
    assert loop.run_until_complete(answer()) == 42, refused
loop.close()
print(failed)
"""


def test_memory_that_is_refused_in_a_run_leaves_nothing_behind() -> None:
    pytest.importorskip("_testcapi", reason="this Python cannot refuse memory on purpose")
    command = [sys.executable, "-c", RUN_WITHOUT_MEMORY, "100"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0
