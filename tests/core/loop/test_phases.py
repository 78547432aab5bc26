"""One turn: its phases, in each run mode and in asyncio's order."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator

import pytest

from tests.core.loop_fakes import SECOND, ObedientClock, Watcher, run_turns
from whorl.core import Event, Loop, RunMode
from whorl.core.limits import PENDING_ROUNDS
from whorl.handles import Check, Idle, Pipe, Prepare, Timer

MACHINE = ["ready", "pending", "idle", "prepare", "event", "check", "closing", "timer"]


class Everything:
    """A loop with something to do in every phase of the next turn, and only then."""

    def __init__(self) -> None:
        self.clock = ObedientClock()
        self.loop = loop = Loop(kernel=self.clock)
        self.seen: list[str] = []
        self.ours, self.theirs = socket.socketpair()
        self.theirs.send(b"x")
        for kind in (Check, Prepare, Idle):
            kind(loop).start(self.once)
        self.timer = Timer(loop)
        self.timer.start(lambda handle: self.seen.append("timer"), SECOND)
        self.watcher = Watcher(loop, self.ours.fileno(), Event.READABLE, self.read)
        pipe = Pipe(loop)
        pipe.open(os.dup(self.ours.fileno()))
        pipe.write(b"y", lambda request, error: self.seen.append("pending"))
        loop.call_soon(self.seen.append, "ready")
        Timer(loop).close(lambda handle: self.seen.append("closing"))
        self.clock.clock += 2 * SECOND

    def once(self, handle: Idle | Prepare | Check) -> None:
        self.seen.append(type(handle).__name__.lower())
        handle.stop()

    def read(self, watcher: Watcher) -> None:
        self.seen.append("event")
        watcher.watch_for(Event(0))

    def close(self) -> None:
        for handle in self.loop.walk():
            handle.close()
        self.loop.run(RunMode.NOWAIT)
        self.loop.close()
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def everything(no_leak: None) -> Iterator[Everything]:
    everything = Everything()
    yield everything
    everything.close()


@pytest.mark.parametrize("mode", [RunMode.ONCE, RunMode.NOWAIT])
def test_a_turn_of_the_machine(everything: Everything, mode: RunMode) -> None:
    everything.loop.run(mode)
    assert everything.seen == MACHINE
    assert everything.clock.sleeps == []
    assert everything.loop.metrics().turns == 1


def test_a_default_run_calls_due_timers_first_and_those_that_fall_due_last(everything: Everything) -> None:
    late = Timer(everything.loop)
    late.start(lambda handle: everything.seen.append("late timer"), 5 * SECOND)
    assert everything.loop.run() is False
    assert everything.seen == ["timer", *MACHINE[:-1], "late timer"]
    assert sum(everything.clock.sleeps) == 3 * SECOND


def test_a_turn_of_asyncio(everything: Everything) -> None:
    run_turns(everything.loop)
    assert everything.seen == [
        "idle", "prepare", "check", "closing", "ready", "event", "pending", "timer"
    ]  # fmt: skip
    run_turns(everything.loop)
    assert len(everything.seen) == 8


def test_handles_added_to_a_later_phase_run_in_the_same_turn(loop: Loop) -> None:
    seen: list[str] = []
    idle, check = Idle(loop), Check(loop)

    def start_check(handle: Idle) -> None:
        handle.stop()
        seen.append("idle")
        check.start(close_idle)

    def close_idle(handle: Check) -> None:
        handle.stop()
        seen.append("check")
        idle.close(lambda handle: seen.append("closing"))

    loop.call_soon(idle.start, start_check)
    loop.run(RunMode.NOWAIT)
    assert seen == ["idle", "check", "closing"]


@pytest.mark.parametrize("phase", [Idle, Prepare, Check])
def test_stop_in_a_phase_lets_the_turn_finish(
    everything: Everything, phase: Callable[[Loop], Idle | Prepare | Check]
) -> None:
    stopper = phase(everything.loop)
    stopper.start(lambda handle: (everything.loop.stop(), handle.stop()))
    everything.loop.run()
    assert everything.seen == ["timer", *MACHINE[:-1]]
    assert everything.loop.metrics().turns == 1


def test_a_chain_of_completions_ends_after_so_many_rounds(loop: Loop) -> None:
    ours, theirs = socket.socketpair()
    pipe = Pipe(loop)
    pipe.open(ours.detach())
    written: list[int] = []  # the turn of each completion

    def write_again(*_: object) -> None:
        written.append(loop.metrics().turns)
        if not pipe.is_closing():
            pipe.write(b"x", write_again)

    with theirs:
        pipe.write(b"x", write_again)
        loop.run(RunMode.NOWAIT)
        assert len(written) == 1 + PENDING_ROUNDS
        timers: list[int] = []
        loop.call_later(0, lambda: timers.append(len(written)))
        loop.run(RunMode.NOWAIT)
        assert timers == [2 * (1 + PENDING_ROUNDS)]  # the chain does not keep timers waiting
        pipe.close()
        loop.run()
