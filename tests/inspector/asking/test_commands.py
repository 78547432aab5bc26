"""The commands that ask an inspected process, as their users start them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from whorl.inspector.asking import client

click = pytest.importorskip("click", reason="the command line needs Click")

PROGRAM = """
import asyncio, sys, time
import whorl, whorl.inspector

async def reader(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await reader.readline()

async def stuck():
    time.sleep(600)

async def main(blocks):
    kept = []
    server = await asyncio.start_server(lambda reader, writer: kept.append(writer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    task = asyncio.create_task(reader(port), name="the reader")
    while not kept:
        await asyncio.sleep(0)
    for _ in range(100):  # Both of its ends are connected, and it reads.
        await asyncio.sleep(0)
    print(port, flush=True)
    if blocks:
        await asyncio.create_task(stuck(), name="the stuck one")
    await task

whorl.inspector.start(threshold=0.05)
whorl.run(main(sys.argv[1:] == ["stuck"]))
"""

Begin = Callable[..., "tuple[subprocess.Popen[str], str]"]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Start the inspected program; return it, and the port of its server."""
    monkeypatch.setenv("WHORL_INSPECT_DIR", str(tmp_path / "inspected"))
    begun = []

    def begin(*arguments: str) -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        begun.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    yield begin
    for process in begun:
        process.kill()
        process.communicate()


def run(*arguments: object, columns: int = 80) -> tuple[int, str, str]:
    """Run a command in a terminal of this width; return its exit code, output, errors."""
    found = subprocess.run(
        [sys.executable, "-m", "whorl", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": str(columns)},
        timeout=120,
    )
    return found.returncode, found.stdout, found.stderr


def test_the_tasks_of_a_process_are_shown(begin: Begin) -> None:
    process, port = begin()
    code, output, errors = run("tasks", process.pid, columns=160)
    assert (code, errors) == (0, "")
    lines = output.splitlines()
    assert lines[0] == f"process {process.pid}: 2 tasks: 2 waiting"
    names = lines[2].split()
    assert (names[:3], names[-2:]) == (["TASK", "COROUTINE", "AT"], ["WAITS", "FOR"])
    assert f"data from 127.0.0.1:{port}" in output
    assert max(map(len, lines)) <= 160
    code, output, _ = run("tasks", process.pid, "--json")
    rows = json.loads(output)["loops"][0]
    fd = next(row["waits_for"]["fd"] for row in rows if row["name"] == "the reader")
    code, output, _ = run("tasks", process.pid, "--waiting-for", fd, columns=160)
    assert "the reader" in output
    assert "Task-1" not in output
    code, output, _ = run("tasks", process.pid, "--tree", columns=160)
    assert output.index("Task-1") < output.index("└─ the reader")
    assert run("tasks", process.pid, "--tree", "--json")[0] == 2


def test_tasks_that_are_alike_are_counted(begin: Begin) -> None:
    process, port = begin()
    code, output, errors = run("tasks", process.pid, "--summary", columns=160)
    assert (code, errors) == (0, "")
    lines = output.splitlines()
    assert lines[0] == f"process {process.pid}: 2 tasks in 2 groups"
    assert lines[2].split() == ["COUNT", "COROUTINE", "AT", "ONE", "WAITS", "FOR"]
    assert f"data from 127.0.0.1:{port}" in output
    found = json.loads(run("tasks", process.pid, "--summary", "--json")[1])["loops"][0]
    assert sorted((row["count"], row["coro"]) for row in found) == [(1, "main"), (1, "reader")]
    assert run("tasks", process.pid, "--summary", "--tree")[0] == 2


def test_the_handles_of_a_process_are_shown(begin: Begin) -> None:
    process, port = begin()
    code, output, errors = run("handles", process.pid)
    assert (code, errors) == (0, "")
    assert f"127.0.0.1:{port}" in output
    assert "listening" in output
    assert max(map(len, output.splitlines())) <= 80
    rows = json.loads(run("handles", process.pid, "--json")[1])["loops"][0]
    assert {"server", "tcp", "wakeup"} <= {row["kind"] for row in rows}


@pytest.mark.gil("only a loop's own thread looks at its tasks without it")
def test_a_stuck_process_is_shown_all_the_same(begin: Begin) -> None:
    process, _ = begin("stuck")
    while not json.loads(run("stalls", process.pid, "--json")[1])["stalls"]:
        pass
    code, output, _ = run("stalls", process.pid)
    assert code == 0
    assert output.startswith(f"process {process.pid}: 1 stall\n")
    assert "in stuck" in output
    code, output, _ = run("tasks", process.pid, "--tree", columns=160)
    assert code == 0
    assert "the stuck one  stuck" in output
    assert "is running" in output


def test_no_process_is_code_3(begin: Begin) -> None:
    assert run("tasks", 4194300)[0] == 3
    code, _, errors = run("handles", os.getpid())
    assert code == 3
    assert "is not inspected" in errors


def test_a_stopped_process_is_code_5_and_says_so(begin: Begin) -> None:
    process, _ = begin()
    process.send_signal(signal.SIGSTOP)
    code, _, errors = run("tasks", process.pid)
    assert code == 5
    assert "It is stopped" in errors


def test_another_users_process_is_code_4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(client.NotOurs) as refusal:
        client.ask(os.getpid(), "hello")
    assert refusal.value.code == 4


def test_wrong_usage_is_code_2() -> None:
    assert run("tasks")[0] == 2
    assert run("tasks", "x")[0] == 2
    assert run("handles", 0)[0] == 2
    for name in ("abc", "1.5", "-1", "9" * 30):
        code, _, errors = run("top", "--", name)
        assert code == 2
        assert f"'{name}' is not the number of a process" in errors


def test_a_process_that_has_ended_and_was_not_waited_for_has_ended(begin: Begin) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    for name in ("tasks", "stalls", "top"):
        code, _, errors = run(name, process.pid)
        assert code == 3
        assert "has ended" in errors or "no recording" in errors
    process.wait()
    process, _ = begin()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert run("stalls", process.pid)[:2] == (0, f"process {process.pid}, which has died: no stalls\n")


def test_a_process_that_died_leaves_a_file_that_nobody_takes_for_living(begin: Begin, tmp_path: Path) -> None:
    process, _ = begin()
    process.kill()
    process.wait()
    assert len(list((tmp_path / "inspected").glob("*.sock"))) == 1
    assert run("tasks", process.pid)[0] == 3
    another, _ = begin()
    left = [path.name.partition("-")[0] for path in (tmp_path / "inspected").glob("*.sock")]
    assert left == [str(another.pid)]


def test_execv_leaves_no_descriptor(tmp_path: Path) -> None:
    code = (
        "import asyncio, os, sys, whorl, whorl.inspector\n"
        "whorl.inspector.start()\n"
        "whorl.run(asyncio.sleep(0))\n"
        "after = \"import os; print(sorted(os.listdir('/proc/self/fd')))\"\n"
        "os.execv(sys.executable, [sys.executable, '-c', after])\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"WHORL_INSPECT_DIR": str(tmp_path / "inspected")},
        timeout=60,
        close_fds=True,
    )
    assert found.stdout == "['0', '1', '2', '3']\n", found.stderr
