"""Curves of how the cost of one event grows, drawn by matplotlib where it is installed."""

import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from cases import SCALES
from report import CaseResult

COLOURS = {"whorl": "#0b6e4f", "uvloop": "#c1666b", "asyncio": "#7a7a7a", "whorl-pure": "#7fb069"}


def is_possible() -> bool:
    """Return whether there is something to draw with."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(path: Path, results: Sequence[CaseResult], loops: Sequence[str]) -> None:
    """Draw a panel for each subject that was measured, and in it a curve for each loop."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "whorl", "font.size": 9})
    from matplotlib import pyplot

    measured = {result.name: result for result in results}
    subjects = {
        subject: {count: measured[case.name] for count, case in curve.items() if case.name in measured}
        for subject, curve in SCALES.items()
    }
    subjects = {subject: curve for subject, curve in subjects.items() if curve}
    figure, panels = pyplot.subplots(1, len(subjects), figsize=(3.1 * len(subjects), 2.9), squeeze=False)
    for panel, (subject, curve) in zip(panels[0], subjects.items(), strict=True):
        _draw_panel(panel, subject, curve, loops)
    panels[0][0].set_ylabel("processor time, µs")
    panels[0][-1].legend(frameon=False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {"Date": None} if path.suffix == ".svg" else None
    figure.savefig(path, metadata=about, facecolor="white", dpi=150)


def _draw_panel(panel: Any, subject: str, curve: dict[int, CaseResult], loops: Sequence[str]) -> None:
    for loop in loops:
        points = list(_points(curve, loop))
        if points:
            panel.plot(
                *zip(*points, strict=True), marker="o", markersize=3, label=loop, color=COLOURS.get(loop)
            )
    panel.set_xscale("log")
    panel.set_ylim(bottom=0)
    panel.set_title(subject, fontsize=9)
    panel.set_xlabel("how many")
    panel.spines[["top", "right"]].set_visible(False)


def _points(curve: dict[int, CaseResult], loop: str) -> Iterator[tuple[int, float]]:
    for count, result in curve.items():
        times = [
            sample.cpu_us for sample in result.samples.get(loop, []) if sample and sample.cpu_us is not None
        ]
        if times:
            yield count, median(times)
