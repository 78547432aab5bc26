"""Runs of the garbage collector count in the thread in which they ran."""

from __future__ import annotations

import threading
import time

import pytest

from whorl.inspector.watching import collector
from whorl.inspector.watching.collector import CollectionTimes


def test_runs_are_added_up_for_each_thread_until_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    times = CollectionTimes()
    for thread, began, ended in ((1, 100, 130), (2, 150, 250), (1, 300, 320)):
        monkeypatch.setattr(threading, "get_native_id", lambda thread=thread: thread)
        for phase, now in (("start", began), ("stop", ended)):
            monkeypatch.setattr(time, "monotonic_ns", lambda now=now: now)
            times._called(phase, {"generation": 0})
    monkeypatch.undo()
    assert [times.total_ns(thread, 400) for thread in (1, 2, 3, None)] == [50, 100, 0, 0]
    assert [times.total_ns(1, moment) for moment in (90, 110, 140, 310, 320)] == [0, 10, 30, 40, 50]


def test_run_that_goes_on_counts_in_its_thread_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    times = CollectionTimes()
    monkeypatch.setattr(threading, "get_native_id", lambda: 1)
    monkeypatch.setattr(time, "monotonic_ns", lambda: 100)
    times._called("start", {})
    monkeypatch.undo()
    assert [times.total_ns(thread, 160) for thread in (1, 2)] == [60, 0]


def test_times_of_few_threads_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    times = CollectionTimes()
    for thread in range(2 * collector.MOST_THREADS):
        monkeypatch.setattr(threading, "get_native_id", lambda thread=thread: thread)
        times._called("start", {})
        times._called("stop", {})
    monkeypatch.undo()
    assert len(times._runs) == collector.MOST_THREADS
