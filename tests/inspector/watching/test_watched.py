"""The shares of a stall's time are those that the kernel has counted, also on a loaded machine."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import pytest

import whorl
from whorl.inspector.watching import looker, looks, threads
from whorl.inspector.watching.reports import Reports
from whorl.inspector.watching.turns import Turns
from whorl.inspector.watching.watched import (
    LongTurn,
    Shares,
    Usage,
    WatchedLoop,
    lock_kept,
    usage_between,
    was_lock_kept,
)

MS = 1_000_000


@pytest.fixture
def watched() -> Any:
    """Return a loop whose callback began at 0, and has slept for 300 ms by 300 ms."""
    loop: Any = whorl.new_event_loop()
    found = WatchedLoop(loop, 1, lambda _: None)
    found.began_ns, found.asleep_ns = 0, 196 * MS  # as seen at 200 ms
    found.base = Usage(1000 * MS, 50 * MS, 7 * MS, 0)
    found.latest = Usage(1001 * MS, 53 * MS, 207 * MS, 0)
    yield found
    found.close()
    loop.close()


def test_shares_of_a_stall_that_has_ended_are_what_the_kernel_counted(
    watched: WatchedLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "is_runnable", lambda _: True)  # The loop goes on already.
    shares = watched.shares(300 * MS, has_ended=True)
    assert (shares.running_ns, shares.starved_ns, shares.asleep_ns) == (1 * MS, 3 * MS, 296 * MS)


def test_shares_of_a_thread_that_is_ready_to_run_have_a_wait_that_is_not_counted_yet(
    watched: WatchedLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "is_runnable", lambda _: True)
    shares = watched.shares(300 * MS)
    assert (shares.running_ns, shares.starved_ns, shares.asleep_ns) == (1 * MS, 103 * MS, 196 * MS)


@pytest.mark.parametrize(("call", "own"), [("0 0x1", 297), ("202 0x1", 97), ("running", 97), ("", 97)])
def test_sleep_in_a_system_call_is_no_wait_for_the_watchdogs_lock(
    watched: WatchedLoop, monkeypatch: pytest.MonkeyPatch, call: str, own: int
) -> None:
    """The watchdog had no processor for 200 ms, perhaps while it had the interpreter's lock."""
    monkeypatch.setattr(threads, "SYSTEM_CALLS", {0: "read", 202: "futex"})
    monkeypatch.setattr(threads, "_text_of", lambda *_: call)
    watched.is_blocked = looker._waits_for_no_lock(watched)
    assert watched.shares(300 * MS, has_ended=True).own_ns == own * MS


@pytest.mark.skipif(not looks.HAS_NATIVE, reason="uncompiled, each file gives up the lock")
@pytest.mark.gil("there is no lock to give up")
def test_a_look_at_a_thread_does_not_give_up_the_lock() -> None:
    """Else its callbacks go on between two things that a look sees."""
    rounds, is_over, former = [0], threading.Event(), sys.getswitchinterval()

    def run() -> None:
        while not is_over.is_set():
            rounds[0] += 1
            time.sleep(0)

    sys.setswitchinterval(60)  # Nobody takes the lock from a thread that keeps it.
    try:
        thread = threading.Thread(target=run)
        thread.start()
        times = threads.Times(thread.native_id or 0)
        time.sleep(0.001)
        before = rounds[0]
        for _ in range(500):
            assert times.read()[0] is not None
            assert threads.is_runnable(times.thread) is not None
        assert rounds[0] == before
    finally:
        is_over.set()
        sys.setswitchinterval(former)
        thread.join()


def test_times_between_two_looks_are_before_the_moment_as_far_as_there_is_room() -> None:
    earlier, latest = Usage(0, 0, 0, 0), Usage(20, 30, 0, 0)
    # The loop ran until the callback began, 15 after the look, and that slept for 10.
    assert usage_between(earlier, latest._replace(ran_ns=15), 15, 15, 10)[0] == 15
    # It slept before, and the callback ran.
    assert usage_between(earlier, latest, 100, 0, 20)[0] == 0
    # It ran all the time.
    assert usage_between(earlier, latest, 5, 5, 15)[0] == 5
    assert usage_between(earlier, latest, 100, 0, 20)[1] == 30
    assert usage_between(earlier, latest, 10, 0, 25)[1] == 10
    assert usage_between(earlier, Usage(None, None, 0, 0), 5, 5, 15)[:2] == (None, None)


@pytest.mark.parametrize(
    ("kept", "starved", "most"),
    [
        (150, 0, True),
        (140, 0, False),
        (140, 20, True),
        (0, 300, False),
        (150, None, True),
        (140, None, False),
    ],
)
def test_time_in_which_others_had_the_processor_does_not_tell_who_had_the_lock(
    watched: WatchedLoop, kept: int, starved: int | None, most: bool
) -> None:
    watched.lock_kept_ns = kept * MS
    shares = Shares(None, None if starved is None else starved * MS, None, 0, 0)
    assert was_lock_kept(watched, 300 * MS, shares) is most


@pytest.mark.parametrize(
    ("ran", "starved", "watchdogs", "kept"),
    [(80, 0, 0, 60), (80, 0, 45, 0), (60, 20, 0, 40), (0, 0, 0, 60), (0, 0, 40, 0), (35, 45, 0, 0)],
)
def test_lock_was_kept_while_the_watchdog_waited_for_it_and_for_no_processor(
    ran: int, starved: int, watchdogs: int, kept: int
) -> None:
    earlier = Usage(100 * MS, 100 * MS, 100 * MS, 0)
    latest = Usage((100 + ran) * MS, (100 + starved) * MS, (100 + watchdogs) * MS, 0)
    assert lock_kept(earlier, latest, 20 * MS, 60 * MS) == kept * MS


@pytest.mark.parametrize(("starved", "reason"), [(160, "gil held"), (0, "running")])
def test_a_turn_of_callbacks_that_kept_the_lock_says_so_on_a_busy_machine(
    watched: WatchedLoop, starved: int, reason: str
) -> None:
    turns = Turns(Reports(lambda call: True))
    turn = LongTurn(watched, 0, Usage(0, 0, 0, 0), 50 * MS, 0)
    turn.lock_kept_ns = 70 * MS
    shares = Shares((300 - starved) * MS, starved * MS, 0, 0, 300 * MS)
    stall = turns._update(turn, turns.reports.begin(turn, 300 * MS), shares, 300 * MS, ended=True)
    assert (stall.reason, stall.callers) == (reason, ())
