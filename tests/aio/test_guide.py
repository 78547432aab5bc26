"""The examples of the guides run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from build_tools.sources import ROOT
from tests.children import bare_environment


def examples_of(page: str) -> dict[str, str]:
    """Return the programs of a page, by their headings."""
    text = (ROOT / "docs/guide" / page).read_text(encoding="utf-8")
    return dict(
        re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    )


EXAMPLES = examples_of("embedding.md")
FILES = examples_of("files.md")
LATENCY = examples_of("latency.md")
CORES = {
    name: f"import warnings\nwarnings.simplefilter('ignore', RuntimeWarning)\n{code}"
    for name, code in examples_of("cores.md").items()
}
INSPECTOR = examples_of("inspector.md")
NEWCOMERS = {
    heading: code
    for page in ("start.md", "one-turn.md", "from-libuv.md", "testing.md")
    for heading, code in examples_of(page).items()
    if "loop_factory =" not in code or sys.version_info >= (3, 13)  # which unittest knows since 3.13
}
PROGRAMS = {
    path.stem: path.read_text(encoding="utf-8")
    for path in [*ROOT.glob("examples/embedded_*.py"), ROOT / "examples/metrics.py"]
}


GROUPS = (EXAMPLES, FILES, LATENCY, CORES, INSPECTOR, NEWCOMERS, PROGRAMS)


@pytest.mark.parametrize(
    "code",
    [text for group in GROUPS for text in group.values()],
    ids=[heading for group in GROUPS for heading in group],
)
def test_an_example_runs_and_says_something(code: str) -> None:
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
    assert answer.stdout


def test_guest_mode_and_step_by_step_have_an_example() -> None:
    assert set(EXAMPLES) == {"Guest mode", "Step by step"}
    assert PROGRAMS


def test_pages_for_newcomers_have_examples() -> None:
    assert len(NEWCOMERS) >= 5


def test_every_part_of_files_has_an_example() -> None:
    assert set(FILES) == {"Whole files", "Open files", "Names and directories", "Temporary files"}
