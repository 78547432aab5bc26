"""Signal: handles that share signals with each other, with other loops and with other programs' handlers."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

import whorl
from tests.core.conftest import close_all
from tests.core.loop_fakes import in_child, quiet_fork, run_turns
from whorl.core import Loop, RunMode
from whorl.handles import Signal, Timer

USR1, USR2 = signal.SIGUSR1, signal.SIGUSR2
SECOND = 1_000_000_000


@pytest.fixture(autouse=True)
def nothing_left(no_leak: None) -> Iterator[None]:
    """Check that a test restores signals, and leaves no handle started."""
    yield
    gc.collect()
    assert signal.set_wakeup_fd(-1) == -1
    assert signal.getsignal(USR1) is signal.getsignal(USR2) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def send(number: int = USR1) -> None:
    os.kill(os.getpid(), number)


def noted(loop: Loop, number: int = USR1) -> tuple[Signal, list[int]]:
    """Return a started handle, and the signals it has reported."""
    seen: list[int] = []
    handle = Signal(loop)
    handle.start(number, lambda handle, number: seen.append(number))
    return handle, seen


def run_until(loop: Loop, done: Any) -> None:
    """Run a loop until something is true; the test's patience is the limit."""
    while not done():
        loop.run(RunMode.ONCE)


# Starting and stopping.


def test_a_signal_is_reported_by_its_number(loop: Loop) -> None:
    handle = Signal(loop)
    seen: list[tuple[Signal, int]] = []
    handle.start(USR1, lambda handle, number: (seen.append((handle, number)), handle.close()))
    assert handle.signum == USR1
    loop.call_soon(send)
    assert not loop.run()
    assert seen == [(handle, USR1)]
    assert handle.signum == 0


def test_signal_is_reported_in_a_turn_and_not_in_between(loop: Loop) -> None:
    _handle, seen = noted(loop)
    signal.raise_signal(USR1)
    assert seen == []
    loop.run(RunMode.NOWAIT)
    assert seen == [USR1]


def test_a_signal_for_another_thread_ends_the_sleep(loop: Loop) -> None:
    ready = threading.Event()
    finished = threading.Event()

    def idle_thread() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [USR1])
        ready.set()
        finished.wait()

    thread = threading.Thread(target=idle_thread)
    thread.start()
    ready.wait()
    handle = Signal(loop)
    handle.start(USR1, lambda handle, number: handle.close())
    assert thread.ident is not None
    loop.call_soon(signal.pthread_kill, thread.ident, USR1)
    loop.run()
    finished.set()
    thread.join()


def test_stopped_handle_does_not_report_a_signal_that_arrived_before(loop: Loop) -> None:
    handle, seen = noted(loop)
    _other, others = noted(loop)
    signal.raise_signal(USR1)
    handle.stop()
    assert not handle.is_active()
    run_turns(loop)
    assert (seen, others) == ([], [USR1])
    handle.start(USR1, lambda handle, number: seen.append(number))
    signal.raise_signal(USR1)
    handle.stop()
    handle.start(USR1, lambda handle, number: seen.append(number))
    run_turns(loop)
    assert seen == []


def test_started_again_it_has_the_new_callback_and_signal(loop: Loop) -> None:
    handle, seen = noted(loop)
    later: list[int] = []
    signal.raise_signal(USR1)
    handle.start(USR1, lambda handle, number: later.append(number))
    run_turns(loop)
    assert (seen, later) == ([], [USR1])
    handle.start(USR2, lambda handle, number: later.append(number))
    assert signal.getsignal(USR1) is signal.SIG_DFL
    signal.raise_signal(USR2)
    run_turns(loop)
    assert later == [USR1, USR2]


def test_a_oneshot_handle_stops_by_itself(loop: Loop) -> None:
    seen: list[int] = []
    handle = Signal(loop)
    handle.start_oneshot(USR1, lambda handle, number: seen.append(number))
    other, others = noted(loop)
    signal.raise_signal(USR1)
    signal.raise_signal(USR1)
    run_turns(loop, 2)
    assert (seen, others) == ([USR1], [USR1, USR1])
    assert not handle.is_active()
    handle.start_oneshot(USR1, lambda handle, number: handle.start(USR2, noted_in(seen)))
    signal.raise_signal(USR1)
    run_turns(loop)
    assert (handle.is_active(), handle.signum) == (True, USR2)
    other.close()


def noted_in(seen: list[int]) -> Any:
    return lambda handle, number: seen.append(number)


def test_handles_are_told_in_the_order_in_which_they_were_started(loop: Loop) -> None:
    order: list[str] = []
    handles = {name: Signal(loop) for name in "abc"}
    for name in "bca":
        handles[name].start(USR1, lambda handle, number, name=name: order.append(name))
    signal.raise_signal(USR1)
    run_turns(loop)
    assert order == ["b", "c", "a"]


def test_handle_closed_by_another_callback_reports_nothing(loop: Loop) -> None:
    first = Signal(loop)
    second, seen = noted(loop)
    second.stop()
    first.start(USR1, lambda handle, number: second.close())
    second.start(USR1, noted_in(seen))
    signal.raise_signal(USR1)
    run_turns(loop)
    assert seen == []


@pytest.mark.parametrize("number", [0, -1, 65, 1000, 2**40, signal.SIGKILL, signal.SIGSTOP])
def test_signal_start_refuses_uncatchable_signals(loop: Loop, number: int) -> None:
    handle = Signal(loop)
    with pytest.raises(OSError, match="Invalid argument") as caught:
        handle.start(number, lambda handle, number: None)
    assert caught.value.errno == errno.EINVAL
    assert not handle.is_active()


def test_misuse_is_refused(loop: Loop) -> None:
    handle = Signal(loop)
    with pytest.raises(TypeError, match="callable"):
        handle.start(USR1, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="number of a signal"):
        handle.start("USR1", print)  # type: ignore[arg-type]
    handle.close()
    with pytest.raises(OSError, match="closed"):
        handle.start(USR1, lambda handle, number: None)


# Other users of signals.


def test_the_former_handler_is_back_when_the_last_one_has_stopped(loop: Loop) -> None:
    called: list[int] = []

    def former(number: int, frame: object) -> None:
        called.append(number)

    signal.signal(USR1, former)
    try:
        first, _seen = noted(loop)
        second, _ = noted(loop)
        first.close()
        signal.raise_signal(USR1)
        assert called == []
        second.close()
        assert signal.getsignal(USR1) is former
        signal.raise_signal(USR1)
        assert called == [USR1]
    finally:
        signal.signal(USR1, signal.SIG_DFL)


def test_an_ignored_signal_is_ignored_again_afterwards(loop: Loop) -> None:
    signal.signal(USR1, signal.SIG_IGN)
    try:
        handle, seen = noted(loop)
        signal.raise_signal(USR1)
        run_turns(loop)
        assert seen == [USR1]
        handle.stop()
        assert signal.getsignal(USR1) is signal.SIG_IGN
    finally:
        signal.signal(USR1, signal.SIG_DFL)


def test_a_signal_that_the_program_takes_over_stays_the_programs(loop: Loop) -> None:
    handle, seen = noted(loop)
    taken: list[int] = []
    signal.signal(USR1, lambda number, frame: taken.append(number))
    try:
        signal.raise_signal(USR1)
        other, others = noted(loop)  # a new start takes it back
        signal.raise_signal(USR1)
        run_turns(loop)
        assert (taken, seen, others) == ([USR1], [USR1], [USR1])
        taken_again = signal.signal(USR1, signal.SIG_IGN)
        assert callable(taken_again)
        other.close()
        handle.close()
        assert signal.getsignal(USR1) is signal.SIG_IGN
    finally:
        signal.signal(USR1, signal.SIG_DFL)


def test_interrupts_are_events_while_a_handle_waits_for_them(loop: Loop) -> None:
    handle = Signal(loop)
    handle.start(signal.SIGINT, lambda handle, number: handle.close())
    loop.call_soon(send, signal.SIGINT)
    loop.run()
    loop.call_soon(send, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        loop.run()


def test_the_wakeup_fd_of_the_program_is_given_back(loop: Loop) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    with ours, theirs:
        signal.set_wakeup_fd(ours.fileno())
        try:
            handle = Signal(loop)
            handle.start(USR1, lambda handle, number: handle.close())
            loop.call_soon(send)
            loop.run()
        finally:
            assert signal.set_wakeup_fd(-1) == ours.fileno()


@pytest.mark.parametrize("handle_first", [True, False])
def test_asyncios_handlers_and_handles_hear_the_same_signal(handle_first: bool) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, whorl.EventLoop)
        seen: list[str] = []
        handle = Signal(loop)

        def start() -> None:
            handle.start(USR1, lambda handle, number: seen.append("handle"))

        if handle_first:
            start()
        loop.add_signal_handler(USR1, seen.append, "asyncio")
        if not handle_first:
            start()
        send()
        while len(seen) < 2:
            await asyncio.sleep(0)
        assert sorted(seen) == ["asyncio", "handle"]
        if handle_first:
            assert loop.remove_signal_handler(USR1)
            send()
            while len(seen) < 3:
                await asyncio.sleep(0)
            assert seen[2] == "handle"
            handle.close()
        else:
            handle.close()
            send()
            while len(seen) < 3:
                await asyncio.sleep(0)
            assert seen[2] == "asyncio"
            assert loop.remove_signal_handler(USR1)

    whorl.run(main())


# Loops and threads.


def test_every_loop_is_told() -> None:
    loops = [Loop() for _ in range(3)]
    handles = [noted(loop) for loop in loops]
    signal.raise_signal(USR1)
    for loop in loops:
        run_turns(loop)
    assert [seen for _, seen in handles] == [[USR1]] * 3
    for loop in loops:
        close_all(loop)


def test_a_loop_of_another_thread_is_told_and_woken(loop: Loop) -> None:
    ready = threading.Event()
    seen: list[int] = []
    failed: list[BaseException] = []

    def other_thread() -> None:
        other = Loop()
        try:
            handle = Signal(other)
            handle.start(USR1, lambda handle, number: (seen.append(number), handle.close()))
            loop.call_soon_threadsafe(ready.set)  # after the loop has installed the handler
            other.run()
        except BaseException as error:
            failed.append(error)
        finally:
            close_all(other)
            loop.call_soon_threadsafe(keeper.close)

    keeper = Timer(loop)
    keeper.start(lambda handle: ready.is_set() and not seen and send(), 0, 1_000_000)
    thread = threading.Thread(target=other_thread)
    loop.call_soon(thread.start)
    loop.run()
    thread.join()
    assert not failed
    assert set(seen) == {USR1}


@pytest.mark.parametrize("loop_is", ["new", "the last one of the main thread's"])
def test_without_a_loop_in_the_main_thread_other_threads_are_refused(loop_is: str) -> None:
    caught: list[BaseException] = []
    former = Loop()
    former.run()

    def other_thread() -> None:
        if loop_is == "new":
            former.close()
            try_to_listen(Loop())
        else:
            former.call_soon(try_to_listen, former)
            run_turns(former, 3)
            former.close()

    def try_to_listen(loop: Loop) -> None:
        handle = Signal(loop)
        try:
            handle.start(USR1, lambda handle, number: None)
        except RuntimeError as error:
            caught.append(error)
        assert not handle.is_active()
        handle.close()
        if not loop.is_running():
            loop.run()
            loop.close()

    thread = threading.Thread(target=other_thread)
    thread.start()
    thread.join()
    assert "main thread" in str(caught[0])


def test_handle_stopped_in_another_thread_is_settled_by_the_next_signal(loop: Loop) -> None:
    former: list[int] = []
    signal.signal(USR1, lambda number, frame: former.append(number))
    try:
        handle, seen = noted(loop)
        thread = threading.Thread(target=handle.stop)
        thread.start()
        thread.join()
        signal.raise_signal(USR1)
        assert former == [USR1]
        run_turns(loop)
        assert seen == []
    finally:
        signal.signal(USR1, signal.SIG_DFL)


def test_a_forked_child_does_with_signals_what_it_did_before(loop: Loop) -> None:
    _handle, seen = noted(loop)

    def child() -> None:
        signal.raise_signal(USR1)

    pid = quiet_fork()
    if pid == 0:
        child()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -USR1
    run_turns(loop)
    assert seen == []


def test_an_ended_child_is_a_signal_too(loop: Loop) -> None:
    handle = Signal(loop)
    seen: list[int] = []
    handle.start(signal.SIGCHLD, lambda handle, number: (seen.append(number), handle.close()))
    assert in_child(lambda: None) == 0
    loop.run()
    assert set(seen) == {signal.SIGCHLD}


@pytest.mark.gil("the collector ends objects in another order")
def test_a_loop_forgotten_with_a_started_handle_is_collected() -> None:
    loop = Loop()
    handle, _ = noted(loop)
    watched = weakref.ref(loop)
    del loop, handle
    with pytest.warns(ResourceWarning, match="unclosed loop"):
        gc.collect()
    gc.collect()
    assert watched() is None


# Storms.


def test_a_storm_of_signals_is_accounted_for(loop: Loop) -> None:
    """Thousands of them; some may count as one, and none comes from nowhere."""
    count = 3000
    seen = {USR1: 0, USR2: 0}
    handles = [Signal(loop), Signal(loop), Signal(loop)]
    callback = lambda handle, number: seen.__setitem__(number, seen[number] + 1)  # noqa: E731
    handles[0].start(USR1, callback)
    handles[1].start(USR2, callback)
    pid = os.getpid()
    child = quiet_fork()
    if child == 0:
        for _ in range(count):
            os.kill(pid, USR1)
            os.kill(pid, USR2)
        os._exit(0)
    ended = threading.Event()
    waiter = threading.Thread(target=lambda: (os.waitpid(child, 0), ended.set()))
    waiter.start()
    deadline = time.monotonic() + 30
    before = loop.metrics().turns
    while not ended.is_set() and time.monotonic() < deadline:
        loop.run(RunMode.NOWAIT)
        time.sleep(0.0005)
    waiter.join()
    loop.run(RunMode.NOWAIT)
    storm = dict(seen)
    assert all(1 <= number <= count for number in storm.values())
    # The last ones were not lost: what is sent now comes, once.
    signal.raise_signal(USR1)
    run_turns(loop)
    assert seen == {USR1: storm[USR1] + 1, USR2: storm[USR2]}
    assert loop.metrics().turns > before


class Echo:
    """A listener; while it takes note of a signal, the next one arrives."""

    def __init__(self, count: int) -> None:
        self.numbers: list[int] = []
        self.count = count

    def _signal_raised(self, number: int) -> bool:
        self.numbers.append(number)
        if len(self.numbers) < self.count:
            signal.raise_signal(USR2 if number == USR1 else USR1)
        return True


def test_a_signal_that_arrives_while_another_is_noted_comes_after_it(loop: Loop) -> None:
    """The handler does not nest: thousands of signals would fill the stack."""
    table, echo = loop._host.signals, Echo(count=3000)
    table.listen(USR1, echo, False)
    table.listen(USR2, echo, False)
    signal.raise_signal(USR1)
    table.unlisten(USR1, echo)
    table.unlisten(USR2, echo)
    assert echo.numbers == [USR1, USR2] * 1500


def test_an_exception_of_another_handler_costs_no_signal_that_waits(loop: Loop) -> None:
    table, echo = loop._host.signals, Echo(count=1)

    def interrupted(number: int) -> bool:
        signal.raise_signal(USR2)
        raise KeyboardInterrupt

    interrupting = mock.Mock(_signal_raised=interrupted)
    table.listen(USR1, interrupting, False)
    table.listen(USR2, echo, False)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(USR1)
    assert echo.numbers == [USR2]
    signal.raise_signal(USR2)
    assert echo.numbers == [USR2, USR2]
    table.unlisten(USR1, interrupting)
    table.unlisten(USR2, echo)


def test_handles_come_and_go_while_signals_arrive(loop: Loop) -> None:
    """Every start reports the signals that arrive while it lasts."""
    rounds = 500
    told = 0

    def count(handle: Signal, number: int) -> None:
        nonlocal told
        told += 1

    keeper, kept = noted(loop)
    for number in range(rounds):
        handle = Signal(loop)
        (handle.start_oneshot if number % 2 else handle.start)(USR1, count)
        signal.raise_signal(USR1)
        run_turns(loop)
        handle.close()
        run_turns(loop)
    assert (told, len(kept)) == (rounds, rounds)
    assert loop.walk() == [keeper]
