"""`instrument`: the figures of loops for OpenTelemetry, by its API alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter

from whorl.inspector.observed import COUNTERS, GAUGES, HISTOGRAMS, Observed

PREFIX = "asyncio.eventloop"
PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "max": 100}


def instrument(meter_provider: MeterProvider | None = None) -> None:
    """Show every loop that runs, by instruments of `meter_provider`, or of the global one."""
    meter = get_meter("whorl", meter_provider=meter_provider)
    observed = Observed(None)

    def metric(name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda _: [
            Observation(getattr(loop.metrics(), name), {"loop": number}) for number, loop in observed.loops()
        ]

    def moved(_: CallbackOptions) -> Iterable[Observation]:
        for number, loop in observed.loops():
            metrics: Any = loop.metrics()
            yield Observation(metrics.bytes_in, {"loop": number, "direction": "in"})
            yield Observation(metrics.bytes_out, {"loop": number, "direction": "out"})

    def percentile(name: str, percent: int) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            for number, loop in observed.loops():
                histogram = getattr(loop.histograms(), name)
                value = histogram.percentile(percent)
                if value is not None:
                    yield Observation(min(value, histogram.max) / 1e9, {"loop": number})

        return observe

    for name in COUNTERS:
        meter.create_observable_counter(f"{PREFIX}.{name}", [metric(name)])
    for name in GAUGES:
        meter.create_observable_gauge(f"{PREFIX}.{name}", [metric(name)])
    meter.create_observable_counter(f"{PREFIX}.bytes", [moved], unit="By")
    for name, field in HISTOGRAMS.items():
        for suffix, percent in PERCENTILES.items():
            meter.create_observable_gauge(f"{PREFIX}.{name}.{suffix}", [percentile(field, percent)], unit="s")
