"""The figures that exporters show: their names and units, a look at them, how their histograms are told."""

from __future__ import annotations

import bisect
import itertools
from dataclasses import dataclass
from typing import NamedTuple

from whorl.core.metrics import Histogram, LoopMetrics, LoopUtilization, _upper_bound
from whorl.core.states import PLACES


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
    Figure("jobs_running", "{job}", "Jobs that a thread of a pool has begun, and look-ups of names."),
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
STALLS = Figure(
    "stalls", "{stall}", "Callbacks and turns that took longer than the threshold of the inspector."
)
STARVED = Figure("starved", "{callback}", "Callbacks that took longer only as they had no processor.")
LEFT_OUT = Figure("loops_left_out", "{loop}", "Loops that run, and for which the recording has no room.")

#: Powers of 4, from 1 µs to 16.8 s, in nanoseconds.
BOUNDS = tuple(1000 * 4**power for power in range(13))
BOUND_NAMES = (*(repr(bound / 1e9) for bound in BOUNDS), "+Inf")
#: For each bucket of a histogram, the first of these bounds that no entry of it exceeds. It depends on the
#: bucket alone, as an entry must never pass to another bound: these series only grow.
BOUND_OF_PLACE = tuple(bisect.bisect_left(BOUNDS, _upper_bound(place)) for place in range(PLACES))

PREFIX = "asyncio_eventloop_"  # of the names that Prometheus gets
UNITS = {"s": "seconds", "By": "bytes", "1": "ratio"}  # which end these names


def cumulated(histogram: Histogram) -> list[tuple[str, int]]:
    """Return for each bound, in seconds, how many entries do not exceed it; the last bound is infinite.

    An entry may be counted under the next bound if it is less than a sixteenth below its own.
    """
    counts = [0] * len(BOUND_NAMES)
    for place, count in histogram._counts.items():
        counts[BOUND_OF_PLACE[place]] += count
    return list(zip(BOUND_NAMES, itertools.accumulate(counts), strict=True))


@dataclass(frozen=True)
class LoopLook:
    """The figures of a loop, read at one moment."""

    label: str
    metrics: LoopMetrics
    histograms: dict[str, Histogram]
    recent: dict[str, Histogram]  #: what came since the exporter last looked
    used: LoopUtilization
    utilization: float  #: since the exporter last looked
    tasks: dict[str, int]
