"""The story of the guide to simulation: its program fails as the page says, and each fix helps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from whorl import sim
from whorl.sim.running.target import targets_of

PAGE = (Path(__file__).parents[3] / "docs/guide/simulation.md").read_text(encoding="utf-8")
PROGRAM, SYNCED, RENAMED = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[:3]
PRINTED = re.findall(r"^```text\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)

pytestmark = pytest.mark.slow


def checked(folder: Path, store: str | None = None, **options: Any) -> sim.Report:
    """Return the report of the page's program, with another way to store the number."""
    program = PROGRAM
    if store is not None:
        program = re.sub(
            r"^async def store.*?(?=^async def)", store + "\n\n", PROGRAM, flags=re.DOTALL | re.MULTILINE
        )
        assert program != PROGRAM
    (folder / "counter.py").write_text(program, encoding="utf-8")
    return sim.check(targets_of(str(folder / "counter.py"))[0].main, stall_s=60, **options)


def plain(text: str) -> list[str]:
    """Return the lines of a text without numbers and paths, which depend on the seed and the machine."""
    return [re.sub(r"[\d.,]+", "#", re.sub(r"\S*/", "", line)) for line in text.splitlines()]


def test_program_of_the_guide_loses_a_number_and_prints_what_the_page_shows(tmp_path: Path) -> None:
    report = checked(tmp_path, seeds=500)
    assert report.failures[0].finding.key == ("exception", "AssertionError")
    assert str(report.failures[0].finding).endswith("AssertionError: (1, 1)")
    shown, printed = plain(PRINTED[0]), plain(str(report))
    first = shown.index(next(line for line in shown if line.startswith("Seed #:")))
    assert shown[first:-1] == printed[printed.index(shown[first]) : -1]


def test_program_of_the_guide_that_syncs_loses_the_file_that_it_empties(tmp_path: Path) -> None:
    report = checked(tmp_path, SYNCED, seeds=500)
    assert report.failures[0].finding.key == ("exception", "ConnectionRefusedError")
    assert "host server: its disk kept another part at the crash" in str(report)
    shown = PRINTED[1].splitlines()
    assert plain(str(report.failures[0].finding))[0] in plain(shown[0])[0]


def test_program_of_the_guide_that_renames_has_no_finding(tmp_path: Path) -> None:
    report = checked(tmp_path, RENAMED, seeds=100)
    assert not report.failed, str(report)
