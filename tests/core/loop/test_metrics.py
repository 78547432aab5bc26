"""The counters of a loop."""

from __future__ import annotations

import signal
import socket
import threading
import time

import pytest

import whorl
from tests.core.loop_fakes import SECOND, Inert, ObedientClock, Watcher, run_forever, run_turns
from whorl.core import Event, Loop, LoopMetrics, LoopUtilization


def test_a_new_loop_has_counted_nothing(loop: Loop) -> None:
    assert loop.metrics() == LoopMetrics(
        turns=0,
        events=0,
        events_waiting=0,
        callbacks=0,
        idle_ns=0,
        ready=0,
        timers=0,
        handles=0,
        active_handles=0,
        active_requests=0,
        bytes_in=0,
        bytes_out=0,
        reads=0,
        writes=0,
        timers_fired=0,
        jobs_waiting=0,
        jobs_running=0,
        accepts=0,
        connections_opened=0,
        connections_closed=0,
        errors_reported=0,
        handshakes_failed=0,
        handles_by_kind={},
    )


def test_each_counter_counts_its_own() -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        watcher = Watcher(loop, ours.fileno(), Event.READABLE)
        Inert(loop)
        theirs.send(b"x")
        loop.call_soon(list)
        loop.call_soon(list)
        loop.call_later(3, list)
        waiting = loop.metrics()
        assert (waiting.ready, waiting.timers, waiting.handles, waiting.turns) == (2, 1, 2, 0)
        run_turns(loop)
        after = loop.metrics()
        assert (after.turns, after.events, after.callbacks, after.idle_ns) == (1, 1, 3, 0)
        assert (after.ready, after.timers, after.handles) == (0, 1, 2)
        ours.recv(1)
        loop.run()
        assert loop.metrics().idle_ns == 3 * SECOND
        assert loop.metrics().callbacks == 4
        watcher.close()
        for handle in loop.walk():
            handle.close()
        loop.run()
        assert loop.metrics().handles == 0
    loop.close()


def test_a_snapshot_cannot_be_changed(loop: Loop) -> None:
    with pytest.raises(AttributeError):
        loop.metrics().turns = 1


def test_metrics_may_be_read_by_another_thread(loop: Loop) -> None:
    looks: list[LoopMetrics] = []
    seen_all = threading.Event()

    def look() -> None:
        while not seen_all.is_set():
            looks.append(loop.metrics())

    thread = threading.Thread(target=look)
    thread.start()

    def tick(number: int) -> None:
        if number:
            loop.call_soon(tick, number - 1)

    loop.call_soon(tick, 20000)
    loop.run()
    seen_all.set()
    thread.join()
    turns = [look.turns for look in looks]
    assert turns == sorted(turns)
    assert loop.metrics().turns == 20001


def test_events_that_had_waited_are_those_found_without_sleeping(loop: Loop) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        watcher = Watcher(loop, ours.fileno(), Event.READABLE)
        theirs.send(b"x")
        run_turns(loop)
        assert (loop.metrics().events, loop.metrics().events_waiting) == (1, 1)
        ours.recv(1)
        thread = threading.Timer(0.01, theirs.send, (b"y",))
        watcher.then = lambda watcher: loop.stop()
        thread.start()
        run_forever(loop)
        assert loop.metrics().events >= 2
        assert loop.metrics().events_waiting == 1
        thread.join()
        watcher.close()


def test_utilization_is_the_active_part_of_the_time_in_runs() -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    assert loop.utilization() == LoopUtilization(0, 0, 0.0)

    def work() -> None:
        clock.clock += SECOND

    loop.call_later(3, work)
    loop.run()
    first = loop.utilization()
    assert first == LoopUtilization(3 * SECOND, SECOND, 0.25)
    clock.clock += 100 * SECOND  # the loop does not run: neither idle nor active
    assert loop.utilization() == first
    seen: list[LoopUtilization] = []

    def look() -> None:
        work()
        seen.append(loop.utilization(first))
        seen.append(loop.utilization())

    loop.call_later(1, look)
    loop.run()
    assert seen == [
        LoopUtilization(SECOND, SECOND, 0.5),
        LoopUtilization(4 * SECOND, 2 * SECOND, 2 / 6),
    ]
    assert seen[1].since(first) == seen[0]
    assert first.since(first) == LoopUtilization(0, 0, 0.0)
    loop.close()


def test_utilization_counts_the_current_sleep_in_another_thread(loop: Loop) -> None:
    readings: list[LoopUtilization] = []
    Inert(loop)

    def look() -> None:
        readings.append(loop.utilization())
        while readings[-1].idle_ns - readings[0].idle_ns < 5_000_000:
            readings.append(loop.utilization())
        loop.call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=look)
    loop.call_later(3600, list)
    loop.call_soon(thread.start)
    run_forever(loop)
    thread.join()
    assert readings[-1].idle_ns > readings[0].idle_ns
    assert all(0 <= reading.utilization <= 1 for reading in readings)


@pytest.mark.skipif(not whorl.compiled, reason="uncompiled, Python runs handlers inside of the sleep")
@pytest.mark.parametrize("spin_ns", [0, 1000])
def test_a_loop_is_awake_in_a_signal_handler_that_ends_its_sleep(loop: Loop, spin_ns: int) -> None:
    idle: list[int] = []
    loop.configure(spin_ns=spin_ns)

    def handle(number: int, frame: object) -> None:
        idle.append(loop.utilization().idle_ns)
        until = time.monotonic_ns() + 1_000_000
        while time.monotonic_ns() < until:
            pass
        idle.append(loop.utilization().idle_ns)
        loop.stop()

    former = signal.signal(signal.SIGALRM, handle)
    loop.call_later(60, list)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        loop.run()
    finally:
        signal.signal(signal.SIGALRM, former)
    assert idle[0] == idle[1] == loop.metrics().idle_ns > 0
