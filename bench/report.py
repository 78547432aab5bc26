"""From samples to ratios: medians over rounds, the table and the JSON."""

import dataclasses
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from measure import Sample

REFERENCES = ["uvloop", "asyncio"]  # of the machine's cases only libuv
BUSY = 0.95  # a load generator with this share of its core is the limit itself
COLUMNS = (
    ("case", 42, "<"), ("loop", 12, "<"), ("per second", 12, ">"),
    ("/ uvloop", 20, ">"), ("/ asyncio", 20, ">"), ("CPU µs", 9, ">"), ("CPU / uvloop", 20, ">"),
    ("p50 µs", 9, ">"), ("p99 µs", 9, ">"), ("", 0, "<"),
)  # fmt: skip


@dataclass(frozen=True)
class Ratio:
    """A ratio to the reference, over the rounds."""

    median: float
    lowest: float
    highest: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.lowest:.2f}..{self.highest:.2f})"


@dataclass
class CaseResult:
    """All samples of one case, by loop and in the order of the rounds; None is a measurement that failed."""

    name: str
    samples: dict[str, list[Sample | None]]
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def has_errors(self) -> bool:
        return bool(self.failures) or any(
            sample.errors for loop in self.samples for sample in self.good(loop)
        )

    def good(self, loop: str) -> list[Sample]:
        return [sample for sample in self.samples[loop] if sample is not None]

    def ratio(self, loop: str, reference: str) -> Ratio | None:
        """Return the ratio of `loop` to `reference` by round, never one of medians of different rounds."""
        return _ratio([ours.rate / theirs.rate for ours, theirs in self._pairs(loop, reference)])

    def cpu_ratio(self, loop: str, reference: str) -> Ratio | None:
        """Return the work of `loop` in the same processor time, relative to `reference`."""
        pairs = [(ours.cpu_us, theirs.cpu_us) for ours, theirs in self._pairs(loop, reference)]
        return _ratio([theirs / ours for ours, theirs in pairs if ours and theirs])

    def _pairs(self, loop: str, reference: str) -> list[tuple[Sample, Sample]]:
        rounds = zip(self.samples[loop], self.samples.get(reference, []), strict=False)
        return [(ours, theirs) for ours, theirs in rounds if ours and theirs]


def header() -> str:
    """Return the first line of the table."""
    titles = iter([f"/ {name}" for name in REFERENCES])
    return _line([
        next(titles, "") if title.startswith("/") else title.replace("uvloop", REFERENCES[0])
        for title, _, _ in COLUMNS
    ])  # fmt: skip


def compare_with(*references: str) -> None:
    """Take the ratios to these loops from now on."""
    REFERENCES[:] = references


def rows(result: CaseResult) -> Iterable[str]:
    """Yield the table's lines for one case, one per loop."""
    for position, loop in enumerate(result.samples):
        yield _row(result, loop, result.name if position == 0 else "")


def save(
    path: Path, results: Sequence[CaseResult], versions: Mapping[str, str], options: Mapping[str, Any]
) -> None:
    """Write everything that was measured as JSON."""
    document = {
        "when": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": _machine(),
        "options": dict(options),
        "loops": dict(versions),
        "cases": {result.name: _case_document(result) for result in results},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def _row(result: CaseResult, loop: str, title: str) -> str:
    good = result.good(loop)
    if not good:
        return _line([title, loop, "failed: " + result.failures[loop]])
    ratios = [result.ratio(loop, reference) if reference != loop else None for reference in REFERENCES]
    cpu_ratio = result.cpu_ratio(loop, REFERENCES[0]) if loop != REFERENCES[0] else None
    return _line([
        title,
        loop,
        f"{median(sample.rate for sample in good):,.0f}",
        *(str(ratio) if ratio else "" for ratio in ratios),
        *([""] * (2 - len(ratios))),
        _median_of(good, "cpu_us", decimals=2),
        str(cpu_ratio) if cpu_ratio else "",
        _median_of(good, "p50_us"),
        _median_of(good, "p99_us"),
        _remarks(good, result.failures.get(loop)),
    ])  # fmt: skip


def _ratio(ratios: Sequence[float]) -> Ratio | None:
    return Ratio(median(ratios), min(ratios), max(ratios)) if ratios else None


def _remarks(samples: Sequence[Sample], failure: str | None) -> str:
    remarks = []
    if errors := sum(sample.errors for sample in samples):
        remarks.append(f"{errors} ERRORS")
    if failure:
        remarks.append(f"a round failed: {failure}")
    if disturbed := sum(sample.is_disturbed for sample in samples):
        remarks.append(f"{disturbed}/{len(samples)} disturbed")
    busy = [sample.client_busy for sample in samples if sample.client_busy is not None]
    if busy and median(busy) > BUSY:
        remarks.append("generator-bound")
    return ", ".join(remarks)


def _median_of(samples: Sequence[Sample], attribute: str, decimals: int = 1) -> str:
    values = [value for sample in samples if (value := getattr(sample, attribute)) is not None]
    return f"{median(values):,.{decimals}f}" if values else ""


def _line(cells: Sequence[str]) -> str:
    padded = (f"{cell:{align}{width}}" for cell, (_, width, align) in zip(cells, COLUMNS, strict=False))
    return " ".join(padded).rstrip()


def _case_document(result: CaseResult) -> dict[str, Any]:
    return {
        loop: {
            "rate": median(sample.rate for sample in result.good(loop)) if result.good(loop) else None,
            "ratios": _ratios_document(loop, result.ratio),
            "cpu_ratios": _ratios_document(loop, result.cpu_ratio),
            "failure": result.failures.get(loop),
            "samples": [dataclasses.asdict(sample) if sample else None for sample in samples],
        }
        for loop, samples in result.samples.items()
    }


def _ratios_document(loop: str, ratio: Callable[[str, str], Ratio | None]) -> dict[str, Any]:
    found = {reference: ratio(loop, reference) for reference in REFERENCES}
    return {reference: dataclasses.asdict(one) for reference, one in found.items() if one}


def _machine() -> dict[str, Any]:
    return {
        "python": sys.version,
        "system": platform.platform(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
