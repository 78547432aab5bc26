"""The examples of the guide run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from build_tools.sources import ROOT
from tests.children import bare_environment
from whorl import handles

GUIDE = (ROOT / "docs/guide/handles.md").read_text(encoding="utf-8")
EXAMPLES = dict(
    re.findall(r"^##+ ([^\n]+)\n(?:(?!^##+ ).)*?^```python\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
)


@pytest.mark.parametrize("code", EXAMPLES.values(), ids=EXAMPLES)
def test_an_example_runs_and_says_something(code: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=bare_environment(),
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout


def test_handles_and_requests_all_have_an_example() -> None:
    shown = {word for code in EXAMPLES.values() for word in re.findall(r"\w+", code)}
    assert set(handles.__all__) - shown <= {
        "Connect",
        "HandleKind",
        "FsRequest",
        "Shutdown",
        "StdioKind",
        "StreamHandle",
        "reset_mode",
        "ThreadPool",
        "UdpSend",
        "Write",
        "guess_handle",
        "kill",
        "thread_pool",
    }
