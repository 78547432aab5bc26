"""The command line, as its users start it: in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import whorl
from tests.inspector.conftest import needs_stacks
from whorl import report

pytest.importorskip("click", reason="the command line needs Click")

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Start the command line in an empty folder; its program runs with warnings as errors."""

    def start(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "whorl", *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture
def run(start: Start) -> Callable[..., tuple[int, str, str]]:
    """Run the command line to its end: exit code, output, errors."""

    def run(*arguments: str) -> tuple[int, str, str]:
        with start(*arguments) as process:
            output, errors = process.communicate(timeout=60)
        return process.returncode, output, errors

    return run


Run = Callable[..., tuple[int, str, str]]

WHICH_LOOP = """
import asyncio, sys

async def which():
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]

print(asyncio.run(which()), __name__, *sys.argv)
"""


WHETHER_IT_COLLECTS = """
import asyncio

async def main():
    print(asyncio.get_running_loop()._held.collects)

asyncio.run(main())
"""


def test_asyncio_run_in_a_script_uses_whorl(run: Run, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(WHICH_LOOP)
    assert run("run", "app.py", "-x", "--help", "y") == (0, "whorl __main__ app.py -x --help y\n", "")


BLOCKS = """
import asyncio, time

async def main():
    await asyncio.sleep(0)
    time.sleep(0.3)  # the line

asyncio.run(main())
"""


@needs_stacks
@pytest.mark.parametrize(
    "options", [["--inspect"], ["--inspect-threshold", "50ms"], ["--inspect", "--inspect-threshold", "0.05"]]
)
def test_an_inspected_program_is_watched(run: Run, tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "app.py").write_text(BLOCKS + "import time; time.sleep(0.2)")
    code, output, errors = run("run", *options, "app.py")
    assert (code, output) == (0, "")
    assert "time.sleep(0.3)  # the line" in errors
    assert "clock_nanosleep" in errors


@pytest.mark.parametrize("threshold", ["soon", "0", "9h"])
def test_a_wrong_threshold_is_a_usage_error(run: Run, tmp_path: Path, threshold: str) -> None:
    (tmp_path / "app.py").write_text(BLOCKS)
    code, _, errors = run("run", "--inspect-threshold", threshold, "app.py")
    assert code == 2
    assert "Usage" in errors


def test_a_server_collects(run: Run, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(WHETHER_IT_COLLECTS)
    assert run("run", "--server", "app.py") == (0, "True\n", "")
    assert run("run", "app.py", "--server") == (0, "False\n", "")


def test_a_script_imports_what_lies_beside_it(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "app.py").write_text("import beside\n")
    (folder / "beside.py").write_text("print('found')\n")
    assert run("run", "folder/app.py") == (0, "found\n", "")


def test_a_folder_with_a_main_module_is_a_program(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "__main__.py").write_text("import beside\n" + WHICH_LOOP)
    (folder / "beside.py").touch()
    assert run("run", "app", "x") == (0, "whorl __main__ app x\n", "")


def test_a_coroutine_function_is_run_to_its_end(run: Run, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "import asyncio, sys\n"
        "async def main():\n"
        "    await asyncio.sleep(0)\n"
        "    print(type(asyncio.get_running_loop()).__module__.partition('.')[0], *sys.argv)\n"
    )
    assert run("run", "app:main", "--flag") == (0, "whorl app:main --flag\n", "")


def test_a_plain_function_is_called(run: Run, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").touch()
    (tmp_path / "package/module.py").write_text("class App:\n    @staticmethod\n    def main(): return 3\n")
    assert run("run", "package.module:App.main") == (3, "", "")


@pytest.mark.parametrize(
    ("statement", "code"),
    [("sys.exit(7)", 7), ("sys.exit()", 0), ("sys.exit('no')", 1), ("raise SystemExit(2)", 2), ("pass", 0)],
)
def test_the_exit_code_is_the_programs_own(run: Run, tmp_path: Path, statement: str, code: int) -> None:
    (tmp_path / "app.py").write_text(
        f"import asyncio, sys\nasync def main():\n    {statement}\nasyncio.run(main())\n"
    )
    assert run("run", "app.py")[0] == code


def test_a_traceback_begins_in_the_program(run: Run, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("def f():\n    1 / 0\n\nf()\n")
    code, _, errors = run("run", "app.py")
    first, frame, *_, last = errors.splitlines()
    assert (code, first, last) == (
        1,
        "Traceback (most recent call last):",
        "ZeroDivisionError: division by zero",
    )
    assert "app.py" in frame


def test_ctrl_c_ends_a_program_by_its_signal(start: Start, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "import asyncio\n"
        "async def main():\n"
        "    print('started', flush=True)\n"
        "    try:\n"
        "        await asyncio.Event().wait()\n"
        "    finally:\n"
        "        print('cleaned up')\n"
        "asyncio.run(main())\n"
    )
    with start("run", "app.py") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (-signal.SIGINT, "cleaned up\n")
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert "launcher.py" not in errors


def test_run_with_an_unknown_option_says_so(run: Run) -> None:
    code, _, errors = run("run", "--bogus", "program.py")
    assert code == 2
    assert "no such option: --bogus" in errors


@pytest.mark.parametrize("name", ["missing.py", "no-module:main", "module:", ":main", "package.module"])
def test_run_of_an_invalid_program_is_a_usage_error(run: Run, name: str) -> None:
    code, _, errors = run("run", name)
    assert code == 2
    assert "neither a file nor of the form" in errors


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing:main", "No module named 'missing'"),
        ("app:missing", "module 'app' has no attribute 'missing'"),
    ],
)
def test_run_of_a_missing_module_or_attribute_prints_one_line(
    run: Run, tmp_path: Path, name: str, message: str
) -> None:
    (tmp_path / "app.py").touch()
    code, _, errors = run("run", name)
    assert code == 1
    assert message in errors
    assert "Traceback" not in errors


def test_without_click_the_command_line_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise ImportError\n")
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    answer = subprocess.run(
        [sys.executable, "-m", "whorl", "info"],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert (answer.returncode, answer.stderr) == (
        1,
        "The command line of Whorl needs Click: pip install click\n",
    )


def test_the_version_is_told(run: Run) -> None:
    assert run("--version") == (0, f"whorl, version {whorl.__version__}\n", "")


def test_info_is_for_programs_too(run: Run) -> None:
    code, output, errors = run("info", "--json")
    assert (code, errors) == (0, "")
    facts = json.loads(output)
    assert facts["whorl"] == whorl.__version__
    assert facts["build"] == ("compiled" if whorl.compiled else "pure")
    assert facts["offered"].keys() >= {"accept4", "epoll_pwait2", "eventfd", "openat2", "pidfd_open"}


def test_info_is_a_table_for_people(run: Run) -> None:
    code, output, errors = run("info")
    assert (code, errors) == (0, "")
    rows = dict(line.split(maxsplit=1) for line in output.splitlines())
    assert rows["whorl"] == whorl.__version__
    assert rows["poller"]


@pytest.mark.skipif(sys.platform != "linux", reason="these are system calls of Linux")
def test_report_for_an_issue_has_more_facts_and_nothing_personal(run: Run) -> None:
    code, output, errors = run("info", "--report", "--json")
    assert (code, errors) == (0, "")
    facts = json.loads(output)
    assert {"whorl", "build", "python", "openssl", "open files", "variables set", "offered"} <= facts.keys()
    personal = (os.path.expanduser("~") + "/", sys.prefix, socket.gethostname(), report.__file__)
    assert [text for text in personal if text in output] == []


def test_the_report_agrees_with_what_python_can_do() -> None:
    told = report.offered()
    assert (told["eventfd"] == "yes") == can(lambda: os.eventfd(0))
    assert (told["pidfd_open"] == "yes") == can(lambda: os.pidfd_open(os.getpid()))


def test_a_system_call_that_does_not_exist_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_NEWER_CALLS", {"frobnicate": (9999,)})
    monkeypatch.setattr(report, "_LIBC_CALLS", {})
    assert report.offered()["frobnicate"] == "no: Function not implemented"


def can(make: Callable[[], int]) -> bool:
    try:
        os.close(make())
    except OSError:
        return False
    return True


def test_command_that_reads_recordings_imports_neither_the_inspector_nor_other_commands() -> None:
    script = """
import sys
from whorl.cli import commands
try:
    commands(["top", "1", "--once", "--json"])
except SystemExit:
    pass
names = "inspector.inspector inspector.recordings.page inspector.recordings.trace report launcher sim"
print([name for name in names.split() if f"whorl.{name}" in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_names_all_commands(run: Run) -> None:
    code, output, _ = run("--help")
    listed = [line.split()[0] for line in output.partition("Commands:")[2].splitlines() if line.strip()]
    expected = "attach dump handles info metrics report run sim stalls tasks top trace"
    assert (code, listed) == (0, expected.split())
