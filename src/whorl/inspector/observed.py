"""The loops that exporters show: what they are seen to do, and the names and units of that.

A loop is shown from its first run until it is closed, under a number that no other loop of the process gets.
So the series of a closed loop end, and no other loop goes on with them.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple

from whorl.core.loop.loop import Loop
from whorl.core.metrics import PLACES, Histogram, LoopMetrics, LoopUtilization, _upper_bound
from whorl.inspector.inspector import current
from whorl.inspector.tables import tasks
from whorl.inspector.watching import runs


class Figure(NamedTuple):
    """A figure that exporters show."""

    name: str
    unit: str  #: as OpenTelemetry writes it
    text: str


#: Fields of `LoopMetrics` that only grow.
COUNTERS = (
    Figure("turns", "{turn}", "Turns of the event loop."),
    Figure("events", "{event}", "Events that the kernel has reported to the loop."),
    Figure("callbacks", "{callback}", "Callbacks, timers and I/O handles that the loop has run."),
    Figure("timers_fired", "{timer}", "Timers that fell due."),
    Figure("accepts", "{connection}", "Connections that servers of the loop have accepted."),
    Figure("connections_opened", "{connection}", "Connections that got a transport or a handle."),
    Figure("connections_closed", "{connection}", "Connections that were closed."),
    Figure("errors_reported", "{error}", "Calls of the loop's exception handler."),
)
#: Fields of `LoopMetrics` that grow and shrink.
GAUGES = (
    Figure("ready", "{callback}", "Callbacks that wait for the next turn."),
    Figure("jobs_waiting", "{job}", "Jobs that wait for a thread of a pool."),
    Figure("jobs_running", "{job}", "Jobs that a thread of a pool has begun."),
)
HISTOGRAMS = (
    Figure("away", "s", "Time from the end of a poll to the beginning of the next: the loop answers nobody."),
    Figure("timer_late", "s", "Time from a timer's deadline until the loop noticed it."),
    Figure("callback", "s", "Time that a callback, a timer or an I/O handle ran, of one turn in 61."),
)
FIELDS = {"away": "away", "timer_late": "late", "callback": "callback"}  # of `LoopHistograms`
BYTES = Figure("bytes", "By", "Bytes that transports and handles have read or sent.")
TIME = Figure("time", "s", "Time that the loop spent in runs, asleep in its poll (idle) or not (active).")
UTILIZATION = Figure("utilization", "1", "Active part of the loop's time since the exporter last looked.")
HANDLES = Figure("handles", "{handle}", "Open handles and transports, by the name of their class.")
TASKS = Figure("tasks", "{task}", "Tasks that are not done, by what they do.")
STALLS = Figure("stalls", "{stall}", "Callbacks that took longer than the threshold of the inspector.")
STARVED = Figure("starved", "{callback}", "Callbacks that took longer only as they had no processor.")

#: Powers of 4, from 1 µs to 16.8 s, in nanoseconds.
BOUNDS = tuple(1000 * 4**power for power in range(13))
BOUND_NAMES = (*(repr(bound / 1e9) for bound in BOUNDS), "+Inf")
#: For each bucket of a histogram, the first of these bounds that no entry of it exceeds. It depends on the
#: bucket alone, as an entry must never pass to another bound: these series only grow.
BOUND_OF_PLACE = tuple(bisect.bisect_left(BOUNDS, _upper_bound(place)) for place in range(PLACES))


@dataclasses.dataclass(frozen=True)
class LoopLook:
    """The figures of a loop, read at one moment."""

    label: str
    metrics: LoopMetrics
    histograms: dict[str, Histogram]
    recent: dict[str, Histogram]  #: what came since the exporter last looked
    used: LoopUtilization
    utilization: float  #: since the exporter last looked
    tasks: dict[str, int]


class Observed:
    """The loops of one exporter: those given, or with None all that run. It keeps none of them alive."""

    def __init__(self, loops: Iterable[Any] | None) -> None:
        self._given = None if loops is None else [weakref.ref(_checked(loop)) for loop in loops]
        self._latest: weakref.WeakKeyDictionary[Any, LoopLook] = weakref.WeakKeyDictionary()

    def start(self) -> None:
        """Give a number to each loop that runs, and from now on to each that begins to."""
        if self._given is None:
            runs.add_listener(self._loop_runs)
            for loop in runs.running_loops():
                runs.number_of(loop)

    def stop(self) -> None:
        """Give no more numbers."""
        runs.remove_listener(self._loop_runs)

    def _loop_runs(self, loop: Any) -> None:
        runs.number_of(loop)

    def look(self) -> list[LoopLook]:
        """Look at the open loops of this process, in the order of their numbers; any thread may call this."""
        if self._given is None:
            found = runs.numbered_loops()
        else:
            found = [loop for reference in self._given if (loop := reference()) is not None]
        shown = [loop for loop in found if not loop.is_closed() and loop._is_in_creating_process()]
        return [self._look_at(loop) for loop in sorted(shown, key=runs.number_of)]

    def _look_at(self, loop: Any) -> LoopLook:
        latest = self._latest.get(loop)
        all_of = loop.histograms()
        histograms: dict[str, Histogram] = {name: getattr(all_of, field) for name, field in FIELDS.items()}
        used: LoopUtilization = loop.utilization()
        if latest is None:
            recent, utilization = histograms, used.utilization
        else:
            # Uncompiled, a sleep that ends meanwhile may be counted twice. The figures shown never go back.
            idle = max(used.idle_ns, latest.used.idle_ns)
            used = LoopUtilization.of(idle, idle + max(used.active_ns, latest.used.active_ns))
            recent = {name: histogram - latest.histograms[name] for name, histogram in histograms.items()}
            utilization = used.since(latest.used).utilization
        look = LoopLook(
            str(runs.number_of(loop)),
            loop.metrics(),
            histograms,
            recent,
            used,
            utilization,
            _states_of_tasks(loop),
        )
        self._latest[loop] = look
        return look


def _checked(loop: Any) -> Loop:
    if not isinstance(loop, Loop):
        raise TypeError(f"loops must be loops of Whorl's, not {loop!r}")
    return loop


def _states_of_tasks(loop: Any) -> dict[str, int]:
    try:
        return tasks.states(loop)
    except RuntimeError:
        return {}  # They change all the time; another look may succeed.


def stalls_and_starved() -> tuple[int, int] | None:
    """Return how many stalls and starved callbacks the inspector has seen; None if it does not run."""
    inspector = current()
    if inspector is None or inspector.watchdog is None:
        return None
    return inspector.watchdog.reports.stalls_seen(), inspector.starved()


def cumulated(histogram: Histogram) -> list[tuple[str, int]]:
    """Return for each bound, in seconds, how many entries do not exceed it; the last bound is infinite.

    An entry may be counted under the next bound if it is less than a sixteenth below its own.
    """
    counts = [0] * len(BOUND_NAMES)
    for place, count in histogram._counts.items():
        counts[BOUND_OF_PLACE[place]] += count
    return list(zip(BOUND_NAMES, itertools.accumulate(counts), strict=True))
