"""The commands that read a recording: dump, trace, report."""

from __future__ import annotations

import gzip
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.inspector.recordings.made_recordings import MS, Made, served
from whorl.core.recording import layout
from whorl.inspector.recordings.recording import read_file

pytest.importorskip("click", reason="the command line needs Click")

Run = Callable[..., tuple[int, str]]

BLOCKS = """
import asyncio, os, sys, time

async def handle_order():
    time.sleep(0.01)

async def main():
    await asyncio.create_task(handle_order(), name="order 4711")
    {end}

asyncio.run(main())
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder, with the inspector's directory in it."""
    monkeypatch.setenv("WHORL_INSPECT_DIR", str(tmp_path / "private"))
    monkeypatch.delenv("WHORL_INSPECT", raising=False)
    return tmp_path


def command(folder: Path, *arguments: str, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "whorl", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


@pytest.fixture
def run(folder: Path) -> Run:
    """Run a command to its end: exit code, and errors."""

    def run(*arguments: str) -> tuple[int, str]:
        with command(folder, *arguments) as process:
            _, errors = process.communicate(timeout=60)
        return process.returncode, errors

    return run


def names(path: Path) -> set[str]:
    """Return the names of the spans in a trace."""
    opened = gzip.open if path.name.endswith(".gz") else open
    with opened(path, "rt") as file:
        return {row["name"] for row in json.load(file)["traceEvents"] if row["ph"] == "X"}


def test_trace_of_a_recording_is_compressed_by_its_name(run: Run, folder: Path) -> None:
    (folder / "shop.recording").write_bytes(served().data())
    assert run("trace", "shop.recording")[0] == 0
    assert run("trace", "shop.recording", "-o", "shop.json")[0] == 0
    assert gzip.decompress((folder / "shop.json.gz").read_bytes()) == (folder / "shop.json").read_bytes()


@pytest.mark.slow
def test_trace_of_the_last_seconds_is_shorter(run: Run, folder: Path) -> None:
    (folder / "shop.recording").write_bytes(served().data())
    run("trace", "shop.recording", "-o", "all.json")
    assert run("trace", "-o", "last.json", "shop.recording", "--seconds", "0.1")[0] == 0
    assert (folder / "last.json").stat().st_size < (folder / "all.json").stat().st_size / 2


def test_report_of_a_recording_is_a_page(run: Run, folder: Path) -> None:
    (folder / "shop.recording").write_bytes(served().data())
    assert run("report", "shop.recording") == (0, "shop.html: open it in a browser\n")
    assert "The loop was blocked 2 times" in (folder / "shop.html").read_text()


def test_file_that_is_cut_or_newer_has_a_code_of_its_own(run: Run, folder: Path) -> None:
    made = Made().event(layout.MARK, MS)
    (folder / "cut").write_bytes(made.data()[:5000])
    made.memory[8] = layout.VERSION + 1
    (folder / "newer").write_bytes(made.data())
    assert run("trace", "cut") == (7, "whorl: the recording is cut\n")
    assert run("report", "newer") == (7, "whorl: the recording is of version 2; this Whorl reads 1\n")
    assert sorted(path.name for path in folder.iterdir()) == ["cut", "newer"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["trace", "nothing"], 2),
        (["report", "nothing"], 2),
        (["dump", "nothing"], 2),
        (["trace", "shop.recording", "x"], 2),
        (["trace", "--all", "shop.recording"], 2),
        (["trace", "--seconds", "0", "shop.recording"], 2),
        (["trace", "4000001"], 3),
        (["report", "4000001"], 3),
        (["dump", "4000001"], 3),
        (["report", "shop.recording", "-o", "no/such/folder"], 1),
    ],
)
def test_mistake_has_its_exit_code(run: Run, folder: Path, arguments: list[str], code: int) -> None:
    (folder / "shop.recording").write_bytes(served().data())
    assert run(*arguments)[0] == code


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("sys.exit(5)", 5),
        ("raise ValueError", 1),
        ("os.kill(os.getpid(), 9)", 128 + 9),
        ("os._exit(6)", 6),
        ("os.abort()", 128 + 6),
    ],
)
def test_trace_of_a_program_is_written_however_it_ends(run: Run, folder: Path, end: str, code: int) -> None:
    (folder / "app.py").write_text(BLOCKS.format(end=end))
    found, errors = run("trace", "-o", "app.json", "app.py", "-o", "x")
    assert found == code, errors
    assert "handle_order" in names(folder / "app.json")


@pytest.mark.slow
def test_arguments_after_a_program_are_its_own(run: Run, folder: Path) -> None:
    (folder / "app.py").write_text(BLOCKS.format(end="sys.exit(int(sys.argv[2]))"))
    assert run("trace", "app.py", "--seconds", "3")[0] == 3
    assert "handle_order" in names(folder / "app.json.gz")


def test_program_without_a_loop_is_said_to_have_no_trace(run: Run, folder: Path) -> None:
    (folder / "app.py").write_text("raise SystemExit(4)")
    assert run("trace", "app.py") == (4, "whorl: nothing was recorded: no loop of Whorl's has run\n")


@pytest.mark.slow
@pytest.mark.parametrize("is_for_both", [True, False])
def test_interrupted_program_has_its_trace(folder: Path, is_for_both: bool) -> None:
    (folder / "app.py").write_text(BLOCKS.format(end="print('ready', flush=True); await asyncio.sleep(60)"))
    with command(folder, "trace", "-o", "app.json", "app.py", start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        if is_for_both:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(children[0]), signal.SIGINT)
        else:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == (130 if is_for_both else 128 + signal.SIGTERM)
    assert "handle_order" in names(folder / "app.json")


STUCK = BLOCKS.format(end="print('ready', flush=True); time.sleep(60)")


@pytest.fixture
def stuck(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Start an inspected program whose loop is stuck."""
    (folder / "app.py").write_text(STUCK)
    environment = os.environ | {"WHORL_INSPECT": "1"}
    with command(folder, "run", "app.py", env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_stuck_process_is_dumped(run: Run, folder: Path, stuck: subprocess.Popen[str]) -> None:
    assert run("dump", str(stuck.pid))[0] == 0
    recording = read_file(folder / f"whorl-{stuck.pid}.recording")
    assert recording.pid == stuck.pid
    assert "handle_order" in {recording.name(event.name_id) for event in recording.events()}


@pytest.mark.slow
def test_stopped_process_has_a_trace_and_a_report(
    run: Run, folder: Path, stuck: subprocess.Popen[str]
) -> None:
    stuck.send_signal(signal.SIGSTOP)
    assert run("trace", str(stuck.pid), "-o", "stuck.json")[0] == 0
    assert run("report", str(stuck.pid), "-o", "stuck.html")[0] == 0
    assert "main" in names(folder / "stuck.json")
    assert "it is stopped" in (folder / "stuck.html").read_text()


@pytest.mark.slow
def test_killed_process_leaves_its_trace(run: Run, folder: Path, stuck: subprocess.Popen[str]) -> None:
    stuck.kill()
    stuck.wait()
    code, errors = run("trace", str(stuck.pid), "-o", "dead.json")
    assert code == 0, errors
    assert "handle_order" in names(folder / "dead.json")


@pytest.mark.parametrize("name", ["report", "trace"])
def test_output_into_a_fifo_does_not_replace_it(run: Run, folder: Path, name: str) -> None:
    (folder / "shop.recording").write_bytes(served().data())
    os.mkfifo(folder / "fifo")
    with command(folder, name, "shop.recording", "-o", "fifo") as process:
        assert len((folder / "fifo").read_bytes()) > 1000
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert (folder / "fifo").is_fifo()
    assert sorted(path.name for path in folder.iterdir()) == ["fifo", "shop.recording"]


def test_earlier_file_stays_if_the_new_one_has_no_room(folder: Path) -> None:
    (folder / "shop.recording").write_bytes(served().data())
    (folder / "shop.html").write_bytes(b"old")

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    with command(folder, "report", "shop.recording", preexec_fn=limit) as process:
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (1, "whorl: shop.html: File too large\n")
    assert (folder / "shop.html").read_bytes() == b"old"
    assert sorted(path.name for path in folder.iterdir()) == ["shop.html", "shop.recording"]
