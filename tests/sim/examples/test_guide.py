"""The program of the guide to simulation fails as the page says, and its fix helps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[3] / "docs/guide/simulation.md"
PROGRAM = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)[0]


def _output(program: str, capsys: Any) -> str:
    exec(compile(program, str(PAGE), "exec"), {})
    return capsys.readouterr().out  # type: ignore[no-any-return]


def test_program_of_the_guide_fails_within_100_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    output = _output(PROGRAM, capsys)
    assert "AssertionError" in output or "ValueError" in output or "EOF" in output, output
    assert "crash host='server'" in output


def test_program_of_the_guide_has_no_finding_once_it_syncs(capsys: pytest.CaptureFixture[str]) -> None:
    synced = PROGRAM.replace(
        "                file.write(str(count))\n",
        "                file.write(str(count))\n"
        "                file.flush()\n"
        "                os.fsync(file.fileno())\n"
        "            host.disk.sync_names('/srv')\n",
    )
    assert synced != PROGRAM
    assert _output("import os\n" + synced, capsys) == ""
