"""The README's programs run as they stand, and its numbers are the published ones."""

from __future__ import annotations

import re
import subprocess
import sys
from types import ModuleType

import pytest

from build_tools.sources import ROOT
from tests.children import bare_environment

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
LONGEST = 110  # lines


@pytest.mark.parametrize("code", PROGRAMS, ids=["files", "handles", "kernels"])
def test_program_runs(code: str) -> None:
    environment = bare_environment()
    if "sim." in code:
        environment["PYTHON_GIL"] = "1"  # a world needs it
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.text
def test_readme_is_short() -> None:
    assert len(TEXT.splitlines()) <= LONGEST


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "bench")
    import page

    return page


@pytest.mark.text
def test_pages_have_the_published_numbers(page: ModuleType) -> None:
    tables = page.read()
    for path in page.PAGES:
        text = path.read_text(encoding="utf-8")
        assert page.refreshed(text, tables) == text, "make bench ARGS=--page"
    assert page.CHART.read_text(encoding="utf-8") == page.chart(tables)


@pytest.mark.text
def test_every_published_table_is_on_the_page(page: ModuleType) -> None:
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert re.findall(r"^<!-- bench: (\S+) -->$", text, re.MULTILINE) == list(page.read())


@pytest.mark.text
def test_run_takes_the_place_of_the_published_table(page: ModuleType) -> None:
    case = {
        loop: {"cpu_ratios": {"uvloop": {"median": ratio}} if ratio else {}}
        for loop, ratio in (
            ("whorl", 1.234),
            ("uvloop", None),
            ("rloop", 1.1),
            ("zloop", 1.3),
            ("asyncio", 0.5),
        )
    }
    document = {
        "when": "2030-01-02T03:04:05+0000",
        "machine": {"python": "3.13.0 (main)"},
        "options": {"rounds": 5},
        "loops": {"whorl": "1", "uvloop": "2", "rloop": "3", "zloop": "4", "asyncio": "5"},
        "cases": {"micro/sleep-0": case},
    }
    name, table = page.table_of(document, page.read())
    assert name == "cpython-3.13"
    assert table["rows"] == [{"title": "`sleep(0)`", "case": "micro/sleep-0", "values": [0.5, 1.3, 1.23]}]
    assert "rloop 3, zloop 4" in table["about"]


@pytest.mark.text
def test_incomplete_run_is_not_published(page: ModuleType) -> None:
    with pytest.raises(page.IncompleteError):
        page.check_complete("result.json", {"rows": []})
