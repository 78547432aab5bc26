"""The plugin of pytest fails the test that blocks a loop, and no other."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import whorl
from build_tools.sources import ROOT
from tests.inspector.conftest import needs_stacks

TESTS = """
import asyncio, time
import pytest, whorl

async def work(blocks):
    for _ in range(3):
        await asyncio.sleep(0.002)
    if blocks:
        time.sleep(0.3)  # the line

@pytest.mark.parametrize("number", range(10))
def test_number(number):
    whorl.run(work(number == 7))

def test_outside_the_loop():
    time.sleep(0.2)

{more}
"""


def run(folder: Path, *options: str, more: str = "", ini: str = "") -> tuple[int, str]:
    (folder / "test_it.py").write_text(TESTS.format(more=more))
    (folder / "pytest.ini").write_text(f"[pytest]\n{ini}\n")
    plugins = ["-p", "whorl.inspector.pytest_plugin", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # a build's egg-info names the plugin, too
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", *plugins, *options],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    return answer.returncode, answer.stdout


@needs_stacks
@pytest.mark.parametrize(
    ("options", "ini"), [(["--whorl-max-stall=100ms"], ""), ([], "whorl_max_stall = 0.1")]
)
def test_the_test_that_blocks_fails_and_no_other(tmp_path: Path, options: list[str], ini: str) -> None:
    code, output = run(tmp_path, *options, ini=ini)
    assert code == 1, output
    assert "1 failed, 10 passed" in output
    assert "FAILED test_it.py::test_number[7]" in output
    assert "time.sleep(0.3)  # the line" in output
    assert "clock_nanosleep" in output


def test_without_a_limit_no_test_fails(tmp_path: Path) -> None:
    code, output = run(tmp_path, "-W", "error")
    assert code == 0, output


def test_limit_without_a_loop_of_whorls_is_told_once(tmp_path: Path) -> None:
    words = "whorl: no test with a limit for stalls ran a loop of Whorl's"
    options = ("--whorl-max-stall=100ms", "-k")
    code, output = run(tmp_path, *options, "outside")
    assert (code, output.count(words)) == (0, 1), output
    code, output = run(tmp_path, *options, "outside or 3")
    assert (code, output.count(words)) == (0, 0), output


@pytest.mark.gil("the watchdog sees whole batches without it")
def test_iteration_of_many_callbacks_fails_a_test(tmp_path: Path) -> None:
    more = """
def busy():
    end = time.thread_time() + 0.002
    while time.thread_time() < end:
        pass

def test_many():
    async def main():
        for _ in range(200):
            asyncio.get_running_loop().call_soon(busy)
        await asyncio.sleep(0)
    whorl.run(main())
"""
    code, output = run(tmp_path, "--whorl-max-stall=100ms", "-k", "many", more=more)
    assert code == 1, output
    assert "callbacks of one iteration, most of all busy (test_it.py:" in output, output


def test_a_mark_comes_before_the_option(tmp_path: Path) -> None:
    more = """
@pytest.mark.whorl(max_stall="3s")
def test_patient():
    whorl.run(work(True))

@pytest.mark.whorl(max_stall=0.1)
def test_impatient(whorl_inspector):
    whorl.run(work(True))
"""
    _, output = run(tmp_path, "-k", "patient", more=more)
    assert "1 failed, 1 passed" in output
    assert "FAILED test_it.py::test_impatient" in output


@pytest.mark.parametrize("text", ["soon", "0", "2h"])
def test_a_wrong_limit_is_a_usage_error(tmp_path: Path, text: str) -> None:
    code, output = run(tmp_path, f"--whorl-max-stall={text}")
    assert code == 4
    assert "whorl_max_stall" in output


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return a folder that tells pytest of Whorl's plugins and files, as an installation does."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    folder = tmp_path / "installed"
    told = folder / "whorl_loop-0.dist-info"
    told.mkdir(parents=True)
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: whorl-loop\nVersion: 0\n")
    plugins = "".join(f"{name} = {module}\n" for name, module in project["entry-points"]["pytest11"].items())
    (told / "entry_points.txt").write_text(f"[pytest11]\n{plugins}")
    package = Path(whorl.__file__).parent
    names = [path.relative_to(package.parent).as_posix() for path in package.rglob("*") if path.is_file()]
    (told / "RECORD").write_text("".join(f"{name},,\n" for name in names))
    (folder / "whorl").symlink_to(package)  # A file that is missing is not told.
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["-m", "pytest"],
        ["-m", "whorl", "run", "-m", "pytest"],
        ["-c", "import whorl, sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"],
    ],
    ids=["pytest first", "by whorl run", "Whorl first"],
)
@pytest.mark.parametrize("plugins", [[], ["-p", "no:whorl", "-p", "no:whorl-sim"]], ids=["loaded", "refused"])
def test_pytest_starts_whether_it_or_whorl_is_imported_first(
    tmp_path: Path, installed: Path, command: list[str], plugins: list[str]
) -> None:
    (tmp_path / "test_it.py").write_text("import whorl\ndef test_it():\n    whorl.new_event_loop().close()\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    paths = [*filter(None, sys.path), str(installed)]
    environment = {**os.environ, "PYTHONPATH": ":".join(paths), "PYTHONWARNINGS": "error"}
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:anyio"]
    options += [option for other in other_plugins() for option in ("-p", f"no:{other}")]
    answer = subprocess.run(
        [sys.executable, *command, *options, *plugins],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert (answer.returncode, "1 passed" in answer.stdout) == (0, True), answer.stdout


def other_plugins() -> list[str]:
    """Return the plugins of this environment that are not Whorl's."""
    found = importlib.metadata.entry_points(group="pytest11")
    return sorted({plugin.name for plugin in found if not plugin.value.startswith("whorl")})
