"""The examples of the guides run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

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
    if heading != "Your tests, on Whorl"  # whose results are looked at below
}
TEST_FILES = dict(
    re.findall(
        r"^### ([^\n]+)\n(?:(?!^##+ ).)*?^```python\n(.*?)^```",
        (ROOT / "docs/guide/testing.md").read_text(encoding="utf-8"),
        re.DOTALL | re.MULTILINE,
    )
)
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


@pytest.mark.slow
@pytest.mark.parametrize("way", ["pytest-asyncio", "anyio", "unittest"])
def test_a_test_of_the_testing_guide_runs_and_passes_on_whorl(way: str, tmp_path: Path) -> None:
    if way != "unittest":
        pytest.importorskip(way.replace("-", "_"), reason=f"{way} is not installed")
    (tmp_path / "test_it.py").write_text(TEST_FILES[way])
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    plugins = {"pytest-asyncio": ["-p", "pytest_asyncio.plugin"], "anyio": ["-p", "anyio"], "unittest": []}
    command = (
        ["test_it.py"] if way == "unittest" else ["-m", "pytest", "-p", "no:cacheprovider", *plugins[way]]
    )
    answer = subprocess.run(
        [sys.executable, *command],
        cwd=tmp_path,
        env=bare_environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    expected = "Ran 1 test in " if way == "unittest" else "1 passed"
    assert (answer.returncode, expected in answer.stdout) == (0, True), answer.stdout


def test_the_ways_to_test_are_those_of_the_testing_guide() -> None:
    assert set(TEST_FILES) == {"pytest-asyncio", "anyio", "unittest"}


def test_each_way_of_embedding_has_an_example() -> None:
    assert set(EXAMPLES) == {"Guest mode", "Step by step", "Runs inside of a callback"}
    assert PROGRAMS


def test_pages_for_newcomers_have_examples() -> None:
    assert len(NEWCOMERS) >= 5


def test_every_part_of_files_has_an_example() -> None:
    assert set(FILES) == {"Whole files", "Open files", "Names and directories", "Temporary files"}
