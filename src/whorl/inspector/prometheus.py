"""`Collector`: what loops do, for Prometheus, by `prometheus_client`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from whorl.inspector.observed import LoopLook, Observed, stalls_and_starved
from whorl.inspector.views.exported import (
    BYTES,
    COUNTERS,
    GAUGES,
    HANDLES,
    HISTOGRAMS,
    PREFIX,
    STALLS,
    STARVED,
    TASKS,
    TIME,
    UNITS,
    UTILIZATION,
    Figure,
    cumulated,
)


class Collector:
    """Shows the given loops, or with None every loop that runs. Register it in a registry.

    Raises TypeError if one of `loops` is not a loop of Whorl's.
    """

    def __init__(self, loops: Iterable[Any] | None = None) -> None:
        self._observed = Observed(loops)
        self._observed.start()

    def describe(self) -> Iterable[Metric]:
        """Return all families that `collect` may return, without values."""
        return _families([], (0, 0))

    def collect(self) -> Iterable[Metric]:
        """Return what the loops have done by now. Any thread may call this, also while a loop is stuck."""
        return _families(self._observed.look(), stalls_and_starved())


def _families(looks: Sequence[LoopLook], watched: tuple[int, int] | None) -> Iterator[Metric]:
    for figure in COUNTERS:
        counter = _counter(figure, "loop")
        for look in looks:
            counter.add_metric([look.label], getattr(look.metrics, figure.name))
        yield counter
    moved, spent = _counter(BYTES, "loop", "direction"), _counter(TIME, "loop", "state")
    for look in looks:
        moved.add_metric([look.label, "in"], look.metrics.bytes_in)
        moved.add_metric([look.label, "out"], look.metrics.bytes_out)
        spent.add_metric([look.label, "idle"], look.used.idle_ns / 1e9)
        spent.add_metric([look.label, "active"], look.used.active_ns / 1e9)
    yield from (moved, spent)
    for figure in GAUGES:
        gauge = _gauge(figure, "loop")
        for look in looks:
            gauge.add_metric([look.label], getattr(look.metrics, figure.name))
        yield gauge
    utilization, handles, tasks = (
        _gauge(UTILIZATION, "loop"),
        _gauge(HANDLES, "loop", "kind"),
        _gauge(TASKS, "loop", "state"),
    )
    for look in looks:
        utilization.add_metric([look.label], look.utilization)
        for kind, count in look.metrics.handles_by_kind.items():
            handles.add_metric([look.label, kind], count)
        for state, count in look.tasks.items():
            tasks.add_metric([look.label, state], count)
    yield from (utilization, handles, tasks)
    for figure in HISTOGRAMS:
        family = HistogramMetricFamily(PREFIX + figure.name, figure.text, labels=["loop"], unit=_unit(figure))
        for look in looks:
            histogram = look.histograms[figure.name]
            family.add_metric([look.label], cumulated(histogram), histogram.total / 1e9)
        yield family
    if watched is not None:
        for figure, seen in zip((STALLS, STARVED), watched, strict=True):
            counter = _counter(figure)
            counter.add_metric([], seen)
            yield counter


def _counter(figure: Figure, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + figure.name, figure.text, labels=labels, unit=_unit(figure))


def _gauge(figure: Figure, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + figure.name, figure.text, labels=labels, unit=_unit(figure))


def _unit(figure: Figure) -> str:
    return UNITS.get(figure.unit, "")
