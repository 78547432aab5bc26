"""`Collector`: the figures of loops for Prometheus, by `prometheus_client`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from whorl.inspector.observed import COUNTERS, GAUGES, HISTOGRAMS, PREFIX, Observed, cumulated


class Collector:
    """Shows the given loops, or with None every loop that runs. Register it in a registry."""

    def __init__(self, loops: Iterable[Any] | None = None) -> None:
        self._observed = Observed(loops)

    def collect(self) -> Iterable[Metric]:
        """Return the figures of now. Any thread may call this, also while a loop is stuck."""
        label = ["loop"]
        counters = {
            name: CounterMetricFamily(f"{PREFIX}_{name}", f"Of the loop: {name}.", labels=label)
            for name in COUNTERS
        }
        gauges = {
            name: GaugeMetricFamily(f"{PREFIX}_{name}", f"Of the loop: {name}.", labels=label)
            for name in GAUGES
        }
        moved = CounterMetricFamily(f"{PREFIX}_bytes", "Bytes of transports.", labels=["loop", "direction"])
        handles = GaugeMetricFamily(
            f"{PREFIX}_handles", "Open handles and transports.", labels=["loop", "kind"]
        )
        times = {
            name: HistogramMetricFamily(f"{PREFIX}_{name}_seconds", f"Of the loop: {name}.", labels=label)
            for name in HISTOGRAMS
        }
        for number, loop in self._observed.loops():
            metrics = loop.metrics()
            for name, counter in counters.items():
                counter.add_metric([number], getattr(metrics, name))
            for name, gauge in gauges.items():
                gauge.add_metric([number], getattr(metrics, name))
            moved.add_metric([number, "in"], metrics.bytes_in)
            moved.add_metric([number, "out"], metrics.bytes_out)
            for kind, count in metrics.handles_by_kind.items():
                handles.add_metric([number, kind], count)
            histograms = loop.histograms()
            for name, family in times.items():
                histogram = getattr(histograms, HISTOGRAMS[name])
                family.add_metric([number], cumulated(histogram), histogram.total / 1e9)
        return [*counters.values(), *gauges.values(), moved, handles, *times.values()]
