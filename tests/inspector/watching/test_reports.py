"""Stalls are told by a thread that may block; what it cannot tell is counted."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import whorl
from whorl.inspector.watching import teller
from whorl.inspector.watching.reports import Reports
from whorl.inspector.watching.teller import Teller
from whorl.inspector.watching.watched import WatchedLoop


def test_teller_does_its_work_in_order_in_a_thread_that_ends() -> None:
    told, done = Teller(), []
    assert all(
        told.tell(lambda number=number: done.append((number, threading.current_thread().name)))
        for number in range(50)
    )
    assert told.wait(30)
    assert done == [(number, "whorl-stalls") for number in range(50)]
    told.stop(30)
    assert "whorl-stalls" not in {thread.name for thread in threading.enumerate()}


def test_teller_that_was_stopped_begins_no_thread() -> None:
    """A look of the watchdog may take longer than the end waits for it, and find a stall."""
    told, done = Teller(), []
    told.stop(0)
    assert not told.tell(lambda: done.append(1))
    assert not done
    assert "whorl-stalls" not in {thread.name for thread in threading.enumerate()}
    told.forget()  # in a forked child
    assert told.tell(lambda: done.append(1))
    told.stop(30)
    assert done == [1]


def test_teller_goes_on_after_an_error_and_refuses_what_is_too_much() -> None:
    told, goes_on, done = Teller(), threading.Event(), []

    def fail() -> None:
        assert goes_on.wait(30)
        raise ValueError

    assert told.tell(fail)
    accepted = sum(told.tell(lambda: done.append(1)) for _ in range(2 * teller.MOST_WAITING))
    assert teller.MOST_WAITING - 1 <= accepted <= teller.MOST_WAITING
    assert not told.wait(0)
    goes_on.set()
    assert told.wait(30)
    assert len(done) == accepted
    told.stop(30)


def test_stall_that_the_log_does_not_take_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    loop: Any = whorl.new_event_loop()
    takes = False

    def tell(work: Callable[[], object]) -> bool:
        if takes:
            work()
        return takes

    reports, watched = Reports(tell), WatchedLoop(loop, None, lambda _: None)
    with caplog.at_level(logging.WARNING, "whorl.inspector"):
        for _ in range(3):
            reports.log(reports.begin(watched, 0))
        takes = True
        reports.log_the_rest()
    [record] = caplog.records
    assert record.getMessage().endswith("(and 2 more stalls)")
    watched.close()
    loop.close()


def test_teller_goes_on_after_a_subscriber_that_ends_its_thread() -> None:
    told, done = Teller(), []
    told.tell(sys.exit)
    told.tell(lambda: done.append(1))
    assert told.wait(30)
    assert done == [1]
    told.stop(30)
