"""What a loop can be told about its sleep."""

from __future__ import annotations

import errno
import os
import signal
import threading

import pytest

from whorl.core import Loop, RunMode
from whorl.handles import Timer

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


def test_only_sigprof_is_held_back(loop: Loop) -> None:
    for number in (signal.SIGINT, signal.SIGUSR1, 0, -1, 99):
        with pytest.raises(OSError, match="SIGPROF") as caught:
            loop.configure(block_signal=number)
        assert caught.value.errno == errno.EINVAL
