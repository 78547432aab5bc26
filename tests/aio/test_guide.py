"""The examples of the guide to embedding run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from build_tools.sources import ROOT

GUIDE = (ROOT / "docs/guide/embedding.md").read_text(encoding="utf-8")
EXAMPLES = dict(
    re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
)
PROGRAMS = {path.stem: path.read_text(encoding="utf-8") for path in ROOT.glob("examples/embedded_*.py")}


@pytest.mark.parametrize("code", [*EXAMPLES.values(), *PROGRAMS.values()], ids=[*EXAMPLES, *PROGRAMS])
def test_an_example_runs_and_says_something(code: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout


def test_both_ways_have_an_example() -> None:
    assert set(EXAMPLES) == {"Guest mode", "Step by step"}
    assert PROGRAMS
