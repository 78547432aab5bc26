"""The loops that exporters show, and their figures in the units that exporters use.

A loop is shown from its first run until it is closed. Its number is given once in a process, so the series
of a closed loop end, and no other loop goes on with them.
"""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from whorl.core.loop.lifecycle import set_run_listener
from whorl.core.loop.loop import Loop
from whorl.core.metrics import Histogram

PREFIX = "asyncio_eventloop"
#: Powers of 4, from 1 µs to 16.8 s, in nanoseconds.
BOUNDS = tuple(1000 * 4**power for power in range(13))
COUNTERS = ("turns", "events", "callbacks", "timers_fired", "accepts", "errors_reported")
GAUGES = ("ready", "jobs_waiting", "jobs_running")
HISTOGRAMS = {"away": "away", "timer_late": "late", "callback": "callback"}

_lock = threading.Lock()
_numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_next_number = itertools.count(1)
_listeners: tuple[Callable[[Any], object], ...] = ()


def add_run_listener(listener: Callable[[Any], object]) -> None:
    """Call `listener` with each loop that begins to run, in the thread of the loop."""
    global _listeners
    with _lock:
        _listeners = (*_listeners, listener)
        set_run_listener(_loop_runs)


def remove_run_listener(listener: Callable[[Any], object]) -> None:
    """Call `listener` no more. One that is not known is ignored."""
    global _listeners
    with _lock:
        _listeners = tuple(one for one in _listeners if one != listener)
        if not _listeners:
            set_run_listener(None)


def _loop_runs(loop: Any) -> None:
    for listener in _listeners:
        listener(loop)


def number_of(loop: Any) -> int:
    """Return the number of a loop, which no other loop of the process gets."""
    with _lock:
        number = _numbers.get(loop)
        if number is None:
            number = _numbers[loop] = next(_next_number)
        return number


def loops_that_run() -> None:
    """Give numbers to the loops that run, and from now on to each loop that begins to run."""
    if number_of not in _listeners:
        add_run_listener(number_of)
    for thing in gc.get_objects():
        if isinstance(thing, Loop) and thing._thread_id is not None:
            number_of(thing)


class Observed:
    """The loops of one exporter: those given, or with None all that run. It keeps none of them alive."""

    def __init__(self, loops: Iterable[Any] | None) -> None:
        self._given = None if loops is None else [weakref.ref(loop) for loop in loops]
        if self._given is None:
            loops_that_run()

    def loops(self) -> list[tuple[str, Any]]:
        """Return the open loops, each with the value of its label."""
        if self._given is None:
            with _lock:
                found = list(_numbers)
        else:
            found = [loop for given in self._given if (loop := given()) is not None]
        return sorted(
            ((str(number_of(loop)), loop) for loop in found if not loop.is_closed()), key=lambda one: one[0]
        )


def cumulated(histogram: Histogram) -> list[tuple[str, int]]:
    """Return how many entries each bound is not exceeded by, in seconds; the last bound is infinite."""
    counts = [0] * (len(BOUNDS) + 1)
    for upper, count in histogram.buckets():
        counts[sum(bound < upper for bound in BOUNDS)] += count
    bounds = [repr(bound / 1e9) for bound in BOUNDS]
    return list(zip([*bounds, "+Inf"], itertools.accumulate(counts), strict=True))
