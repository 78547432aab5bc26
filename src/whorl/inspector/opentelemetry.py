"""`instrument`: what loops do, for OpenTelemetry, by its API alone.

OpenTelemetry asks each instrument by a call of its own, and has no histogram that is filled by asking. So the
instruments share one look at the loops, and percentiles are gauges.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter

from whorl.inspector.observed import Observed, stalls_and_starved
from whorl.inspector.views.exported import (
    BYTES,
    COUNTERS,
    GAUGES,
    HANDLES,
    HISTOGRAMS,
    STALLS,
    STARVED,
    TASKS,
    TIME,
    UTILIZATION,
    Figure,
    LoopLook,
)

PREFIX = "asyncio.eventloop."
PERCENTILES = (("p50", 50, "median"), ("p90", 90, "90th percentile"), ("p99", 99, "99th percentile"))
#: How long instruments share a look, in seconds. Two readers may ask at the same time, in any order.
OLDEST = 1.0

Values = Iterable[tuple[float, dict[str, str]]]
Callback = Callable[[CallbackOptions], Iterable[Observation]]


class Instrumentation:
    """The instruments of one provider. `instrument` makes it."""

    def __init__(self, meter: Meter) -> None:
        self._observed = Observed(None)
        self._is_on = False
        self._shared: tuple[Sequence[LoopLook], set[object], float] | None = None
        self._make_instruments(meter)

    def start(self) -> None:
        """Show the loops, after `stop` again."""
        self._is_on = True
        self._observed.start()

    def stop(self) -> None:
        """Show nothing more. The instruments stay, as OpenTelemetry cannot remove them."""
        self._is_on = False
        self._observed.stop()
        self._shared = None

    def _make_instruments(self, meter: Meter) -> None:
        for figure in COUNTERS:
            self._make(meter.create_observable_counter, figure, _metric(figure.name))
        self._make(meter.create_observable_counter, BYTES, _bytes)
        self._make(meter.create_observable_counter, TIME, _time)
        for figure in GAUGES:
            self._make(meter.create_observable_up_down_counter, figure, _metric(figure.name))
        self._make(meter.create_observable_up_down_counter, HANDLES, _handles)
        self._make(meter.create_observable_up_down_counter, TASKS, _tasks)
        self._make(meter.create_observable_gauge, UTILIZATION, _utilization)
        for figure in HISTOGRAMS:
            for suffix, percent, word in (*PERCENTILES, ("max", 100, "maximum")):
                text = f"{figure.text} The {word} since the last collection."
                one = Figure(f"{figure.name}.{suffix}", figure.unit, text)
                self._make(meter.create_observable_gauge, one, _percentile(figure.name, percent))
        for place, figure in enumerate((STALLS, STARVED)):
            callback = self._seen(place)
            meter.create_observable_counter(PREFIX + figure.name, [callback], figure.unit, figure.text)

    def _make(self, create: Callable[..., Any], figure: Figure, read: Callable[[LoopLook], Values]) -> None:
        def observe(_: CallbackOptions) -> Iterator[Observation]:
            for look in self._shared_look(read):
                for value, attributes in read(look):
                    yield Observation(value, {"loop": look.label, **attributes})

        create(PREFIX + figure.name, [observe], figure.unit, figure.text)

    def _shared_look(self, instrument: object) -> Sequence[LoopLook]:
        """Return a look for an instrument: that of the others, unless it has had that one or it is old."""
        if not self._is_on:
            return ()
        shared, now = self._shared, time.monotonic()
        if shared is None or instrument in shared[1] or now - shared[2] > OLDEST:
            shared = self._shared = (self._observed.look(), set(), now)
        shared[1].add(instrument)
        return shared[0]

    def _seen(self, place: int) -> Callback:
        def observe(_: CallbackOptions) -> Iterator[Observation]:
            watched = stalls_and_starved() if self._is_on else None
            if watched is not None:
                yield Observation(watched[place])

        return observe


def _metric(name: str) -> Callable[[LoopLook], Values]:
    return lambda look: [(getattr(look.metrics, name), {})]


def _bytes(look: LoopLook) -> Values:
    yield look.metrics.bytes_in, {"direction": "in"}
    yield look.metrics.bytes_out, {"direction": "out"}


def _time(look: LoopLook) -> Values:
    yield look.used.idle_ns / 1e9, {"state": "idle"}
    yield look.used.active_ns / 1e9, {"state": "active"}


def _utilization(look: LoopLook) -> Values:
    yield look.utilization, {}


def _handles(look: LoopLook) -> Values:
    for kind, count in look.metrics.handles_by_kind.items():
        yield count, {"kind": kind}


def _tasks(look: LoopLook) -> Values:
    for state, count in look.tasks.items():
        yield count, {"state": state}


def _percentile(name: str, percent: int) -> Callable[[LoopLook], Values]:
    def read(look: LoopLook) -> Values:
        value = look.recent[name].percentile(percent)
        if value is not None:
            yield value / 1e9, {}

    return read


#: By provider; the function `get_meter` stands for the global one, which may be set later.
_made: weakref.WeakKeyDictionary[Any, Instrumentation] = weakref.WeakKeyDictionary()


def instrument(meter_provider: MeterProvider | None = None) -> Instrumentation:
    """Show every loop that runs, by instruments of `meter_provider`, or with None of the global one.

    Calling this again with the same provider changes nothing, and returns the same object.
    """
    key: Any = get_meter if meter_provider is None else meter_provider
    made = _made.get(key)
    if made is None:
        made = _made[key] = Instrumentation(get_meter("whorl", meter_provider=meter_provider))
    made.start()
    return made
