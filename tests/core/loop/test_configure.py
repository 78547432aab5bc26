"""The options of a loop's sleep."""

from __future__ import annotations

import errno
import os
import resource
import selectors
import signal
import threading

import pytest

from whorl.core import Loop, RunMode
from whorl.handles import Async, Timer

MILLISECOND = 1_000_000


@pytest.mark.parametrize("timeout", [50 * MILLISECOND, None])
@pytest.mark.parametrize("blocked", [True, False])
def test_a_blocked_signal_waits_until_the_sleep_is_over(
    loop: Loop, blocked: bool, timeout: int | None
) -> None:
    order: list[str] = []
    former = signal.signal(signal.SIGPROF, lambda number, frame: order.append("signal"))
    main = threading.main_thread().ident
    assert main is not None
    loop.configure(block_signal=signal.SIGPROF if blocked else None)
    sleeping = threading.Event()

    def from_outside() -> None:
        sleeping.wait()
        while os.path.exists(f"/proc/self/task/{threading.main_thread().native_id}/stat"):
            with open(f"/proc/self/task/{threading.main_thread().native_id}/stat") as file:
                if file.read().rsplit(")", 1)[1].split()[0] == "S":
                    break
        signal.pthread_kill(main, signal.SIGPROF)
        order.append("sent")
        if timeout is None:
            loop.call_soon_threadsafe(order.append, "woken")

    if timeout is not None:
        Timer(loop).start(lambda timer: (order.append("woken"), timer.close()), timeout)
    thread = threading.Thread(target=from_outside)
    thread.start()
    loop.call_soon(sleeping.set)
    held = Timer(loop)
    held.start(lambda timer: None, 3600 * 1000 * MILLISECOND)
    try:
        while "woken" not in order:
            loop.run(RunMode.ONCE)
        thread.join()
    finally:
        signal.signal(signal.SIGPROF, former)
    assert sorted(order) == ["sent", "signal", "woken"]
    assert signal.SIGPROF not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_blocked_signal_does_not_end_the_sleep(loop: Loop) -> None:
    """An interval timer that fires all the time leaves one turn one turn."""
    signals: list[int] = []
    former = signal.signal(signal.SIGPROF, lambda number, frame: signals.append(number))
    loop.configure(block_signal=signal.SIGPROF)
    main = threading.main_thread().ident
    assert main is not None
    stop = threading.Event()

    def storm() -> None:
        while not stop.wait(0.001):
            signal.pthread_kill(main, signal.SIGPROF)

    thread = threading.Thread(target=storm)
    thread.start()
    try:
        Timer(loop).start(lambda timer: timer.close(), 60 * MILLISECOND)
        before = loop.metrics().turns
        loop.run()
        assert loop.metrics().turns - before <= 4
    finally:
        stop.set()
        thread.join()
        signal.signal(signal.SIGPROF, former)


def sleeps_of(loop: Loop) -> int:
    """Return how often this thread yields by itself while the loop waits twenty times for a millisecond."""
    timer = Timer(loop)
    left = [20]

    def tick(timer: Timer) -> None:
        left[0] -= 1
        if not left[0]:
            timer.close()

    timer.start(tick, MILLISECOND, MILLISECOND)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    loop.run()
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before


def test_a_loop_that_spins_does_not_sleep_meanwhile(loop: Loop) -> None:
    loop.configure(spin_ns=500 * MILLISECOND)
    assert sleeps_of(loop) < 10
    loop.configure(spin_ns=0)
    assert sleeps_of(loop) >= 10


def test_a_loop_that_has_spun_for_long_enough_sleeps(loop: Loop) -> None:
    loop.configure(spin_ns=1000)
    assert sleeps_of(loop) >= 10


def test_configure_leaves_unnamed_options_unchanged(loop: Loop) -> None:
    loop.configure(block_signal=signal.SIGPROF, spin_ns=1000)
    loop.configure()
    loop.configure(spin_ns=0)
    assert loop._kernel.blocked_signal == signal.SIGPROF
    loop.configure(block_signal=None)
    assert loop._kernel.blocked_signal == 0


def test_another_thread_ends_the_spinning(loop: Loop) -> None:
    loop.configure(spin_ns=1000 * MILLISECOND)
    handle = Async(loop, lambda handle: handle.close())
    thread = threading.Thread(target=handle.send)
    loop.call_soon(thread.start)
    loop.run()
    thread.join()
    assert handle.is_closing()


def test_a_signal_ends_the_spinning(loop: Loop) -> None:
    loop.configure(spin_ns=1000 * MILLISECOND)
    seen: list[int] = []
    former = signal.signal(signal.SIGUSR1, lambda number, frame: (seen.append(number), timer.close()))
    timer = Timer(loop)
    timer.start(lambda timer: None, 3600 * 1000 * MILLISECOND)
    thread = threading.Thread(target=signal.pthread_kill, args=(threading.get_ident(), signal.SIGUSR1))
    loop.call_soon(thread.start)
    try:
        loop.run()
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, former)
    assert seen == [signal.SIGUSR1]


@pytest.mark.parametrize("spin_ns", [-1, 1000 * MILLISECOND + 1, 2**70])
def test_a_loop_spins_for_at_most_a_second(loop: Loop, spin_ns: int) -> None:
    with pytest.raises(OSError, match="at most a second") as caught:
        loop.configure(spin_ns=spin_ns)
    assert caught.value.errno == errno.EINVAL
    assert loop._kernel.spin_ns == 0


def test_a_loop_spins_for_whole_nanoseconds(loop: Loop) -> None:
    for wrong in (1.5, "1", None):
        with pytest.raises(TypeError):
            loop.configure(spin_ns=wrong)  # type: ignore[arg-type]
    assert loop._kernel.spin_ns == 0


def test_a_loop_on_a_selector_does_not_spin() -> None:
    loop = Loop(poller=selectors.PollSelector())
    with pytest.raises(OSError, match="cannot spin") as caught:
        loop.configure(spin_ns=1000)
    loop.configure(spin_ns=0)
    loop.close()
    assert caught.value.errno == errno.ENOSYS


def test_only_sigprof_is_held_back(loop: Loop) -> None:
    for number in (signal.SIGINT, signal.SIGUSR1, 0, -1, 99):
        with pytest.raises(OSError, match="SIGPROF") as caught:
            loop.configure(block_signal=number)
        assert caught.value.errno == errno.EINVAL
