"""Idle, Prepare, Check: when they run, and what starting and stopping in their own phase does."""

from __future__ import annotations

import contextvars
import errno
import os
import socket
from collections.abc import Callable

import pytest

from tests.core.loop_fakes import Deadlock, ObedientClock, run_turns
from whorl.core import Event, Loop, RunMode
from whorl.handles import Check, Idle, Pipe, Poll, Prepare, Timer

Watcher = type[Idle] | type[Prepare] | type[Check]


def run_machine(loop: Loop) -> None:
    """Make one turn in libuv's order."""
    loop.run(RunMode.NOWAIT)


EACH_KIND = pytest.mark.parametrize("kind", [Idle, Prepare, Check])
IN_BOTH_ORDERS = pytest.mark.parametrize("run_once", [run_machine, run_turns], ids=["machine", "asyncio"])


@IN_BOTH_ORDERS
def test_each_kind_has_its_phase(loop: Loop, run_once: Callable[[Loop], None]) -> None:
    seen: list[str] = []
    for kind in (Check, Prepare, Idle):
        kind(loop).start(lambda handle: seen.append(type(handle).__name__))
    run_once(loop)
    assert seen == ["Idle", "Prepare", "Check"]
    run_once(loop)
    assert seen == ["Idle", "Prepare", "Check"] * 2


def test_the_phases_of_a_turn_come_in_libuvs_order(loop: Loop) -> None:
    seen: list[str] = []
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Poll(loop, theirs).start(Event.WRITABLE, lambda handle, events, error: seen.append("poll"))
        Check(loop).start(lambda handle: seen.append("check"))
        Prepare(loop).start(lambda handle: seen.append("prepare"))
        Idle(loop).start(lambda handle: seen.append("idle"))
        Timer(loop).start(lambda handle: seen.append("timer"), 0)
        pipe = Pipe(loop)
        pipe.open(os.dup(ours.fileno()))
        pipe.write(b"x", lambda request, error: seen.append("pending"))
        loop.call_soon(seen.append, "ready")
        Idle(loop).close(lambda handle: seen.append("closing"))
        loop.run(RunMode.NOWAIT)
    assert seen == ["ready", "pending", "idle", "prepare", "poll", "check", "closing", "timer"]


def test_a_default_run_calls_due_timers_before_its_first_turn(loop: Loop) -> None:
    seen: list[str] = []
    timer = Timer(loop)
    timer.start(lambda handle: seen.append("timer"), 0)
    idle = Idle(loop)
    idle.start(lambda handle: (seen.append("idle"), handle.stop()))
    loop.run(RunMode.DEFAULT)
    assert seen == ["timer", "idle"]


@EACH_KIND
@IN_BOTH_ORDERS
def test_the_handle_started_last_runs_first(
    loop: Loop, kind: Watcher, run_once: Callable[[Loop], None]
) -> None:
    seen: list[int] = []
    for number in range(4):
        kind(loop).start(lambda handle, number=number: seen.append(number))
    run_once(loop)
    assert seen == [3, 2, 1, 0]


@EACH_KIND
@IN_BOTH_ORDERS
def test_a_handle_started_in_its_own_phase_waits_for_the_next_turn(
    loop: Loop, kind: Watcher, run_once: Callable[[Loop], None]
) -> None:
    seen: list[str] = []
    late = kind(loop)
    kind(loop).start(lambda handle: (seen.append("early"), late.start(lambda other: seen.append("late"))))
    run_once(loop)
    assert seen == ["early"]
    run_once(loop)
    assert seen == ["early", "late", "early"]


@IN_BOTH_ORDERS
def test_a_handle_started_in_an_earlier_phase_runs_in_the_same_turn(
    loop: Loop, run_once: Callable[[Loop], None]
) -> None:
    seen: list[str] = []
    prepare, check = Prepare(loop), Check(loop)
    Idle(loop).start(lambda handle: prepare.start(lambda other: seen.append("prepare")))
    Prepare(loop).start(lambda handle: check.start(lambda other: seen.append("check")))
    run_once(loop)
    assert seen == ["prepare", "check"]


@EACH_KIND
def test_a_handle_stopped_in_its_own_phase_does_not_run(loop: Loop, kind: Watcher) -> None:
    seen: list[str] = []
    other = kind(loop)
    other.start(lambda handle: seen.append("other"))
    kind(loop).start(lambda handle: (seen.append("first"), other.stop()))
    loop.run(RunMode.NOWAIT)
    assert seen == ["first"]
    assert not other.is_active()


@EACH_KIND
def test_a_handle_restarted_in_its_own_phase_goes_to_the_front_of_the_next_turn(
    loop: Loop, kind: Watcher
) -> None:
    seen: list[str] = []
    other = kind(loop)
    other.start(lambda handle: seen.append("before"))

    def restart(handle: Idle) -> None:
        seen.append("first")
        other.stop()
        other.start(lambda handle: seen.append("after"))

    kind(loop).start(restart)
    loop.run(RunMode.NOWAIT)
    assert seen == ["first"]
    loop.run(RunMode.NOWAIT)
    assert seen == ["first", "after", "first"]


@EACH_KIND
def test_a_handle_closed_in_its_own_phase_does_not_run(loop: Loop, kind: Watcher) -> None:
    seen: list[str] = []
    other = kind(loop)
    other.start(lambda handle: seen.append("other"))
    first = kind(loop)
    first.start(
        lambda handle: (
            other.close(lambda handle: seen.append("other closed")),
            first.close(lambda handle: seen.append("first closed")),
        )
    )
    loop.run(RunMode.NOWAIT)
    assert seen == ["first closed", "other closed"]


@EACH_KIND
def test_starting_again_changes_nothing(loop: Loop, kind: Watcher) -> None:
    seen: list[str] = []
    older, newer = kind(loop), kind(loop)
    older.start(lambda handle: seen.append("older"))
    newer.start(lambda handle: seen.append("newer"))
    older.start(lambda handle: seen.append("another callback"))
    loop.run(RunMode.NOWAIT)
    assert seen == ["newer", "older"]


@EACH_KIND
def test_stopping_what_is_not_started_does_nothing(loop: Loop, kind: Watcher) -> None:
    handle = kind(loop)
    handle.stop()
    handle.start(print)
    handle.stop()
    handle.stop()
    assert not handle.is_active()
    assert not loop.alive()


@EACH_KIND
def test_a_started_handle_keeps_the_loop_alive_unless_unreferenced(loop: Loop, kind: Watcher) -> None:
    handle = kind(loop)
    assert not loop.alive()
    handle.start(lambda handle: None)
    assert loop.alive()
    handle.unref()
    assert not loop.alive()
    handle.ref()
    assert loop.alive()
    handle.stop()
    assert not loop.alive()


@pytest.mark.parametrize("mode", [RunMode.DEFAULT, RunMode.ONCE])
@pytest.mark.parametrize("referenced", [True, False], ids=["referenced", "unreferenced"])
def test_an_idle_handle_keeps_the_loop_from_sleeping(mode: RunMode, referenced: bool) -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    turns = 0

    def count(handle: Idle) -> None:
        nonlocal turns
        turns += 1
        if turns == 3:
            handle.stop()
            timer.stop()

    timer = Timer(loop)
    timer.start(lambda handle: None, 1_000_000)
    idle = Idle(loop)
    idle.start(count)
    if not referenced:
        idle.unref()
    while loop.run(mode):
        pass
    assert turns == 3
    assert clock.sleeps == []
    idle.close()
    timer.close()
    loop.run()
    loop.close()


@pytest.mark.parametrize("kind", [Prepare, Check])
def test_other_watchers_do_not_keep_it_from_sleeping(kind: Watcher) -> None:
    loop = Loop(kernel=ObedientClock())
    handle = kind(loop)
    handle.start(lambda handle: None)
    with pytest.raises(Deadlock):
        loop.run(RunMode.ONCE)
    handle.close()
    loop.run()
    loop.close()


@EACH_KIND
def test_stop_of_the_loop_lets_the_turn_finish(loop: Loop, kind: Watcher) -> None:
    seen: list[str] = []
    Idle(loop).start(lambda handle: None)
    Check(loop).start(lambda handle: seen.append("check"))
    kind(loop).start(lambda handle: (seen.append("stop"), loop.stop()))
    loop.run()
    assert seen == ["stop", "check"]
    assert loop.metrics().turns == 1


@EACH_KIND
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_the_handles_started(loop: Loop, kind: Watcher, error: type[BaseException]) -> None:
    seen: list[str] = []

    def fail_once(handle: Idle) -> None:
        seen.append("fails")
        if len(seen) == 1:
            raise error("on purpose")

    kind(loop).start(lambda handle: seen.append("other"))
    kind(loop).start(fail_once)
    with pytest.raises(error, match="on purpose"):
        loop.run(RunMode.NOWAIT)
    loop.run(RunMode.NOWAIT)
    assert seen == ["fails", "fails", "other"]


@EACH_KIND
def test_the_callback_runs_in_the_context_of_the_start(loop: Loop, kind: Watcher) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    seen: list[str] = []
    handle = kind(loop)
    contextvars.copy_context().run(
        lambda: (variable.set("start"), handle.start(lambda handle: seen.append(variable.get())))
    )
    loop.run(RunMode.NOWAIT)
    assert seen == ["start"]


@EACH_KIND
def test_a_closed_handle_cannot_be_started(loop: Loop, kind: Watcher) -> None:
    handle = kind(loop)
    handle.close()
    with pytest.raises(OSError, match="is closed") as caught:
        handle.start(print)
    assert caught.value.errno == errno.EINVAL


@EACH_KIND
def test_loop_watchers_refuse_a_non_callable(loop: Loop, kind: Watcher) -> None:
    handle = kind(loop)
    with pytest.raises(TypeError, match="callable"):
        handle.start(None)  # type: ignore[arg-type]
    assert not handle.is_active()
