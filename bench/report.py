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

REFERENCES = ["uvloop", "asyncio"]
BUSY = 0.95  # a load generator with this share of its core is the limit itself
WIDTHS = (42, 15, 12, 20, 20, 9, 20, 9, 9, 0)  # of the columns; the first two are names


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
        if loop == reference:
            return []
        rounds = zip(self.samples[loop], self.samples.get(reference, []), strict=False)
        return [(ours, theirs) for ours, theirs in rounds if ours and theirs]


def compare(loops: Sequence[str]) -> None:
    """Take ratios to uvloop and asyncio, or to the last loop if neither runs."""
    if not set(REFERENCES) & set(loops):
        REFERENCES[:] = [loops[-1], ""]


def header() -> str:
    """Return the first line of the table."""
    first, second = REFERENCES
    return _line([
        "case", "loop", "per second", f"/ {first}", f"/ {second}" if second else "",
        "CPU µs", f"CPU / {first}", "p50 µs", "p99 µs", "",
    ])  # fmt: skip


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
        "machine": {
            "python": sys.version, "system": platform.platform(), "cores": len(os.sched_getaffinity(0))
        },
        "options": dict(options),
        "loops": dict(versions),
        "cases": {result.name: _case_document(result) for result in results},
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def _row(result: CaseResult, loop: str, title: str) -> str:
    good = result.good(loop)
    if not good:
        return _line([title, loop, "failed: " + result.failures[loop]])
    ratios = [result.ratio(loop, reference) for reference in REFERENCES]
    return _line([
        title,
        loop,
        f"{median(sample.rate for sample in good):,.0f}",
        *(str(ratio or "") for ratio in ratios),
        _median_of(good, "cpu_us", decimals=3),
        str(result.cpu_ratio(loop, REFERENCES[0]) or ""),
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
    if median(sample.client_busy or 0 for sample in samples) > BUSY:
        remarks.append("generator-bound")
    return ", ".join(remarks)


def _median_of(samples: Sequence[Sample], attribute: str, decimals: int = 1) -> str:
    values = [value for sample in samples if (value := getattr(sample, attribute)) is not None]
    return f"{median(values):,.{decimals}f}" if values else ""


def _line(cells: Sequence[str]) -> str:
    aligned = zip(cells, WIDTHS, "<<" + ">" * len(WIDTHS), strict=False)
    return " ".join(f"{cell:{align}{width}}" for cell, width, align in aligned).rstrip()


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
