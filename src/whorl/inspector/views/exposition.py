"""The figures of a recording in the text format of Prometheus.

The names are those of `whorl.inspector.Collector`. A recording does not tell the kinds of handles, nor what
each task does. These samples have `all` in the place of a kind or a state.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from whorl.core.metrics import Histogram
from whorl.inspector.recordings.recording import RecordedLoop
from whorl.inspector.views.exported import (
    BYTES,
    COUNTERS,
    FIELDS,
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
    cumulated,
)
from whorl.inspector.views.pictures import Reading, times_of, utilization

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_OWN_LABELS = ("loop", "direction", "state", "kind", "le")

Labels = tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    """A number, and the labels that it has."""

    name: str
    labels: Labels
    value: float


class Family(NamedTuple):
    """The samples of one figure."""

    name: str  #: without `_total` and the like
    kind: str  #: "counter", "gauge" or "histogram"
    text: str
    samples: list[Sample]


def labels_of(texts: Iterable[str]) -> Labels:
    """Return labels given as `NAME=VALUE`. Raises ValueError."""
    labels: list[tuple[str, str]] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not _LABEL.fullmatch(name) or name.startswith("__"):
            raise ValueError(f"a label is written NAME=VALUE, not {text!r}")
        if name in (*_OWN_LABELS, *(other for other, _ in labels)):
            raise ValueError(f"there is a label {name} already")
        labels.append((name, value))
    return tuple(labels)


def families(reading: Reading, added: Labels = (), earlier: Reading | None = None) -> Iterator[Family]:
    """Yield the figures of the loops that are open; each sample has these labels besides its own.

    The utilization is that since an earlier reading; without one, since the loop began.
    """
    loops = [loop for loop in reading.loops.values() if loop.fields["state"] == 1]
    numbered = [(loop, (*added, ("loop", str(loop.number)))) for loop in loops]
    for figure in COUNTERS:
        name = _name(figure)
        samples = [Sample(f"{name}_total", labels, _value(loop, figure.name)) for loop, labels in numbered]
        yield Family(name, "counter", figure.text, samples)
    moved, spent = _name(BYTES), _name(TIME)
    yield Family(
        moved,
        "counter",
        BYTES.text,
        [
            Sample(f"{moved}_total", (*labels, ("direction", way)), loop.counters[f"bytes_{way}"])
            for loop, labels in numbered
            for way in ("in", "out")
        ],
    )
    times = [(times_of(loop, reading.now_ns), labels) for loop, labels in numbered]
    yield Family(
        spent,
        "counter",
        TIME.text,
        [
            Sample(f"{spent}_total", (*labels, ("state", state)), nanoseconds / 1e9)
            for (ran, idle), labels in times
            for state, nanoseconds in (("idle", idle), ("active", ran - idle))
        ],
    )
    for figure in GAUGES:
        name = _name(figure)
        samples = [Sample(name, labels, _value(loop, figure.name)) for loop, labels in numbered]
        yield Family(name, "gauge", figure.text, samples)
    for figure, label in ((HANDLES, "kind"), (TASKS, "state")):
        name = _name(figure)
        samples = [
            Sample(name, (*labels, (label, "all")), _value(loop, figure.name)) for loop, labels in numbered
        ]
        yield Family(name, "gauge", figure.text, samples)
    name = _name(UTILIZATION)
    used = [Sample(name, labels, utilization(reading, loop, earlier)) for loop, labels in numbered]
    yield Family(name, "gauge", UTILIZATION.text, used)
    for figure in HISTOGRAMS:
        yield _histogram(figure, numbered)
    recording = reading.found.recording
    for figure, seen in ((STALLS, recording.stalls_written), (STARVED, recording.starved)):
        name = _name(figure)
        yield Family(name, "counter", figure.text, [Sample(f"{name}_total", added, seen)])
    name = _name(LEFT_OUT)
    yield Family(name, "gauge", LEFT_OUT.text, [Sample(name, added, recording.left_out)])


def _name(figure: Figure) -> str:
    unit = UNITS.get(figure.unit, "")
    name = PREFIX + figure.name
    return f"{name}_{unit}" if unit and not name.endswith(unit) else name


def _value(loop: RecordedLoop, name: str) -> int:
    """Return a figure by the name that exporters give it."""
    fields, counters = loop.fields, loop.counters
    if name == "tasks":
        return max(0, fields["tasks_made"] - fields["tasks_done"])
    if name == "jobs_waiting":
        return max(0, counters["jobs_submitted"] - counters["jobs_begun"])
    if name == "jobs_running":
        return max(0, counters["jobs_begun"] - counters["jobs_ended"])
    return fields[name] if name in fields else counters[name]


def _histogram(figure: Figure, numbered: list[tuple[RecordedLoop, Labels]]) -> Family:
    name = _name(figure)
    samples = []
    for loop, labels in numbered:
        histogram: Histogram = getattr(loop.histograms, FIELDS[figure.name])
        bounds = cumulated(histogram)
        samples += [Sample(f"{name}_bucket", (*labels, ("le", bound)), count) for bound, count in bounds]
        samples.append(Sample(f"{name}_count", labels, bounds[-1][1]))
        samples.append(Sample(f"{name}_sum", labels, histogram.total / 1e9))
    return Family(name, "histogram", figure.text, samples)


def as_text(found: Iterable[Family]) -> str:
    """Return figures as Prometheus reads them."""
    lines = []
    for family in found:
        # In this format, and other than in OpenMetrics, the name of a counter ends as its samples do.
        name = f"{family.name}_total" if family.kind == "counter" else family.name
        lines += [f"# HELP {name} {_escaped(family.text, quotes=False)}", f"# TYPE {name} {family.kind}"]
        for sample in family.samples:
            labels = ",".join(f'{label}="{_escaped(value)}"' for label, value in sample.labels)
            lines.append(f"{sample.name}{f'{{{labels}}}' if labels else ''} {sample.value!r}")
    return "\n".join(lines) + "\n"


def _escaped(text: str, quotes: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def as_json(found: Iterable[Family]) -> str:
    """Return figures as one JSON object: a list of samples for each name."""
    samples: dict[str, list[dict[str, object]]] = {}
    for family in found:
        for sample in family.samples:
            samples.setdefault(sample.name, []).append({"labels": dict(sample.labels), "value": sample.value})
    return json.dumps(samples) + "\n"
