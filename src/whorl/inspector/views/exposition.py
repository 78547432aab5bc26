"""The figures of loops as `prometheus_client` takes them, and those of a recording as text and as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from whorl.inspector.views.exported import (
    BYTES,
    COUNTERS,
    GAUGES,
    HANDLES,
    HISTOGRAMS,
    LEFT_OUT,
    PREFIX,
    STALLS,
    STARVED,
    TASKS,
    TIME,
    UNITS,
    UTILIZATION,
    Figure,
    LoopLook,
    cumulated,
)
from whorl.inspector.views.pictures import Reading, looks_of

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_OWN_LABELS = ("loop", "direction", "state", "kind", "le")


def labels_of(texts: Iterable[str]) -> dict[str, str]:
    """Return labels given as `NAME=VALUE`. Raises ValueError."""
    labels: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not _LABEL.fullmatch(name) or name.startswith("__"):
            raise ValueError(f"a label is written NAME=VALUE, not {text!r}")
        if name in (*_OWN_LABELS, *labels):
            raise ValueError(f"there is a label {name} already")
        labels[name] = value
    return labels


def families(
    looks: Sequence[LoopLook],
    watched: tuple[int, int] | None,
    left_out: int | None = None,
    added: Mapping[str, str] | None = None,
) -> Iterator[Metric]:
    """Yield the figures of loops, and those of the watchdog if it runs; each sample has the added labels."""
    names, values = [*(added or {})], [*(added or {}).values()]

    def family(kind: Any, figure: Figure, labels: tuple[str, ...], rows: Iterable[Any]) -> Metric:
        unit = UNITS.get(figure.unit, "")
        made = kind(PREFIX + figure.name, figure.text, labels=[*names, *labels], unit=unit)
        for own, *numbers in rows:
            made.add_metric([*values, *own], *numbers)
        return made  # type: ignore[no-any-return]

    counter, gauge = CounterMetricFamily, GaugeMetricFamily
    for kind, figures in ((counter, COUNTERS), (gauge, GAUGES)):
        for figure in figures:
            rows = [((look.label,), getattr(look.metrics, figure.name)) for look in looks]
            yield family(kind, figure, ("loop",), rows)
    moved, spent, handles, tasks = [], [], [], []
    for look in looks:
        moved += [((look.label, way), getattr(look.metrics, f"bytes_{way}")) for way in ("in", "out")]
        spent += [((look.label, how), getattr(look.used, f"{how}_ns") / 1e9) for how in ("idle", "active")]
        handles += [((look.label, kind), number) for kind, number in look.metrics.handles_by_kind.items()]
        tasks += [((look.label, state), number) for state, number in look.tasks.items()]
    yield family(counter, BYTES, ("loop", "direction"), moved)
    yield family(counter, TIME, ("loop", "state"), spent)
    yield family(gauge, UTILIZATION, ("loop",), [((look.label,), look.utilization) for look in looks])
    yield family(gauge, HANDLES, ("loop", "kind"), handles)
    yield family(gauge, TASKS, ("loop", "state"), tasks)
    for figure in HISTOGRAMS:
        found = [(look.label, look.histograms[figure.name]) for look in looks]
        sums = [((label,), cumulated(histogram), histogram.total / 1e9) for label, histogram in found]
        yield family(HistogramMetricFamily, figure, ("loop",), sums)
    for figure, seen in zip((STALLS, STARVED), watched or (), strict=False):
        yield family(counter, figure, (), [((), seen)])
    if left_out is not None:
        yield family(gauge, LEFT_OUT, (), [((), left_out)])


class RecordingCollector:
    """Shows the figures of a recording; the utilization is that since an earlier reading, if there is one."""

    def __init__(
        self, now: Reading, earlier: Reading | None = None, added: Mapping[str, str] | None = None
    ) -> None:
        self._now = now
        self._earlier = earlier
        self._added = added

    def collect(self) -> Iterator[Metric]:
        """Return the figures of the loops that are open."""
        recording = self._now.found.recording
        watched = (recording.stalls_written, recording.starved)
        return families(looks_of(self._now, self._earlier), watched, recording.left_out, self._added)


def as_text(collector: RecordingCollector) -> str:
    """Return figures as Prometheus reads them."""
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry).decode()


def as_json(collector: RecordingCollector) -> str:
    """Return figures as one JSON object: a list of samples for each name."""
    samples: dict[str, list[dict[str, object]]] = {}
    for family in collector.collect():
        for sample in family.samples:
            samples.setdefault(sample.name, []).append({"labels": sample.labels, "value": sample.value})
    return json.dumps(samples) + "\n"
