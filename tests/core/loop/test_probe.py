"""The probe: the calls of an observer of the loop."""

from __future__ import annotations

import logging
import socket

import pytest

from tests.core.loop_fakes import SECOND, Inert, ObedientClock, Watcher, run_turns
from whorl.core import Event, Loop, Probe


class Recorder(Probe):
    """A probe that notes its calls."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def turn_began(self, turn: int, ready: int) -> None:
        self.told.append(("turn", turn, ready))

    def polled(self, slept_ns: int, events: int) -> None:
        self.told.append(("polled", slept_ns, events))

    def callback_ran(self, entry: object, took_ns: int) -> None:
        self.told.append(("ran", entry, took_ns))

    def timer_due(self, entry: object, late_ns: int) -> None:
        self.told.append(("due", entry, late_ns))

    def handle_opened(self, handle: object) -> None:
        self.told.append(("opened", handle))

    def handle_closed(self, handle: object) -> None:
        self.told.append(("closed", handle))


def test_a_probe_is_told_of_callbacks_and_how_long_they_took() -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    probe = Recorder()
    loop.set_probe(probe)

    def work() -> None:
        clock.clock += 5

    callback = loop.call_soon(work)
    run_turns(loop)
    assert ("turn", 1, 1) in probe.told
    assert ("ran", callback, 5) in probe.told
    loop.close()


def test_a_probe_is_told_how_long_the_loop_slept_and_what_it_found() -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        watcher = Watcher(loop, ours.fileno(), Event.READABLE)
        probe = Recorder()
        loop.set_probe(probe)
        loop.call_later(2, list)
        loop.call_later(2, list)
        loop.run()
        assert ("polled", 2 * SECOND, 0) in probe.told
        theirs.send(b"x")
        loop.call_soon(list)
        run_turns(loop)
        assert ("polled", 0, 1) in probe.told
        watcher.close()
        loop.run()
    loop.close()


def test_a_probe_is_told_how_late_a_timer_is() -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    probe = Recorder()
    loop.set_probe(probe)
    timer = loop.call_later(1, list)
    clock.clock += SECOND + 7
    run_turns(loop)
    assert ("due", timer, 7) in probe.told
    loop.close()


def test_a_probe_is_told_of_due_timers_in_both_orders() -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    probe = Recorder()
    loop.set_probe(probe)
    timer = loop.call_later(1, list)
    loop.run()
    assert [told[0] for told in probe.told if timer in told] == ["due", "ran"]
    loop.close()


def test_a_probe_is_told_of_handles(loop: Loop) -> None:
    probe = Recorder()
    loop.set_probe(probe)
    handle = Inert(loop)
    assert probe.told == [("opened", handle)]
    handle.close()
    loop.run()
    assert ("closed", handle) in probe.told


def test_a_probe_taken_away_is_told_no_more(loop: Loop) -> None:
    probe = Recorder()
    loop.set_probe(probe)
    loop.set_probe(None)
    loop.call_soon(list)
    loop.run()
    Inert(loop).close()
    assert probe.told == []


@pytest.mark.parametrize("what", ["turn_began", "polled", "callback_ran", "handle_opened", "timer_due"])
def test_a_probe_that_fails_is_logged_and_removed(
    loop: Loop, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Probe):
        pass

    def fail(self: Probe, *args: object) -> None:
        raise ValueError("on purpose")

    setattr(Failing, what, fail)
    seen: list[int] = []
    loop.set_probe(Failing())
    with caplog.at_level(logging.ERROR, logger="whorl"):
        loop.call_soon(seen.append, 1)
        loop.call_later(0, seen.append, 2)
        Inert(loop).close()
        loop.run()
    assert seen == [1, 2] or seen == [2, 1]
    assert [record.name for record in caplog.records] == ["whorl"]
    assert "failed and was removed" in caplog.records[0].getMessage()
