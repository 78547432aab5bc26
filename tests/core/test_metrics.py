"""The counters of a loop."""

from __future__ import annotations

import socket
import threading

import pytest

from tests.core.machinery import SECOND, Inert, ObedientClock, Watcher, run_turns
from whorl.core import Event, Loop, LoopMetrics


def test_a_new_loop_has_counted_nothing(loop: Loop) -> None:
    assert loop.metrics() == LoopMetrics(
        turns=0,
        events=0,
        callbacks=0,
        idle_ns=0,
        ready=0,
        timers=0,
        handles=0,
        active_handles=0,
        active_requests=0,
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


def test_another_thread_may_look(loop: Loop) -> None:
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
