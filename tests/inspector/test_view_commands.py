"""`whorl top` and `whorl metrics`, as their users start them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.inspector.asking.test_commands import run
from tests.inspector.views.made_recordings import MS, Made, busy_server
from whorl.inspector.asking import directory

pytest.importorskip("click", reason="the command line needs Click")

NOBODY = 4194300  # a number that no process has


class Recorded:
    """A process that does nothing, and a recording that says what it does."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        self.pid = self.process.pid
        made = busy_server(Made(self.pid, directory.start_time(self.pid) or 0), time.monotonic_ns())
        made.write(folder)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WHORL_INSPECT_DIR", str(tmp_path / "recorded"))
    return tmp_path / "recorded"


@pytest.fixture
def recorded(folder: Path) -> Iterator[Recorded]:
    found = Recorded(folder)
    yield found
    found.process.kill()
    found.process.wait()


def once(*arguments: object) -> dict[str, Any]:
    code, output, errors = run("top", *arguments, "--once", "--json", "--interval", "50ms")
    assert (code, errors) == (0, "")
    found: dict[str, Any] = json.loads(output)
    return found


def test_top_shows_all_processes(recorded: Recorded, folder: Path) -> None:
    dead = Made(NOBODY, 1)
    dead.loop(updated_ns=time.monotonic_ns() - 200_000 * MS)
    dead.write(folder)
    code, output, errors = run("top", "--once", "--interval", "50ms", "--ended")
    assert (code, errors) == (0, "")
    lines = output.splitlines()
    assert any(line.split()[0] == str(recorded.pid) for line in lines)
    assert f"{NOBODY} app.py" in output
    assert "died 3 min " in output
    assert max(map(len, lines)) <= 80


def test_top_of_a_stuck_process_says_so(recorded: Recorded) -> None:
    code, output, _ = run("top", recorded.pid, "--once", "--interval", "50ms")
    assert code == 0
    assert "stuck in handle_order (order 4711) for" in output
    loop = once(recorded.pid)["processes"][0]["loops"][0]
    assert (loop["state"], loop["call"]["task"], loop["call"]["stuck"]) == ("stuck", "order 4711", True)


def test_top_of_a_stopped_process_says_so(recorded: Recorded) -> None:
    recorded.process.send_signal(signal.SIGSTOP)
    os.waitpid(recorded.pid, os.WUNTRACED)
    found = once(recorded.pid)["processes"][0]
    assert (found["state"], found["loops"][0]["state"]) == ("stopped", "stopped")


def test_top_of_a_process_that_was_killed_says_so(recorded: Recorded) -> None:
    recorded.process.kill()
    recorded.process.wait()
    found = once(recorded.pid)["processes"][0]
    assert found["state"] == "died"
    code, output, _ = run("top", recorded.pid, "--plain")
    assert code == 0
    assert "died" in output


def test_top_without_a_terminal_is_plain_and_goes_on(recorded: Recorded) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "whorl", "top", str(recorded.pid), "--interval", "50ms"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    pictures = 0
    while pictures < 3:
        pictures += process.stdout.readline().startswith("loop 1  stuck")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")


def test_names_of_json_stay(recorded: Recorded) -> None:
    found = once(recorded.pid)
    assert list(found) == ["version", "time", "processes"]
    process = found["processes"][0]
    assert list(process) == [
        *("pid", "user", "state", "command", "python", "whorl", "recording", "namespace", "seen_ago"),
        *("loops", "loops_left_out", "stalls", "stalls_seen", "starved", "window", "longest", "busiest"),
    ]
    assert list(process["loops"][0]) == [
        *("loop", "state", "over", "utilization", "turns", "callbacks", "events", "bytes_in", "bytes_out"),
        *("away", "timer_late", "callback", "ready", "timers", "handles", "tasks", "connections"),
        *("jobs_waiting", "jobs_running", "errors", "call"),
    ]
    assert list(process["loops"][0]["away"]["recent"]) == ["count", "p50", "p99", "max"]
    assert list(process["stalls"][0]) == ["number", "ago", "length", "ended", "summary", "text"]
    assert list(process["longest"][0]) == ["loop", "name", "task", "seconds", "ago"]
    assert list(process["busiest"][0]) == ["name", "seconds", "steps"]


def test_process_that_is_not_recorded_is_code_3(folder: Path) -> None:
    for command in ("top", "metrics"):
        for pid in (os.getpid(), NOBODY):
            code, output, errors = run(command, pid)
            assert (code, output) == (3, "")
            assert errors.startswith("whorl: ")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_process_of_another_user_is_code_4_and_nothing_is_told(recorded: Recorded, tmp_path: Path) -> None:
    from whorl.inspector import view_commands as commands
    from whorl.inspector.views import sources

    assert sources
    output = tmp_path / "output"
    with output.open("w") as file:
        child = os.fork()
        if child == 0:  # It has all modules that it needs: the other user may not read their files.
            code = 99
            try:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
                sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
                os.setuid(12345)
                commands.top.main([str(recorded.pid), "--once", "--json"])
            except SystemExit as end:
                code = int(end.code or 0)
                sys.stderr.flush()
                sys.stdout.flush()
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    assert output.read_text() == f"whorl: process {recorded.pid} is another user's\n"


@pytest.mark.parametrize(
    "arguments",
    [["x"], ["0"], ["--interval", "soon"], ["--interval", "0"], ["--interval", "2h"], ["1", "2"]],
)
def test_wrong_usage_is_code_2(arguments: list[str]) -> None:
    assert run("top", *arguments)[0] == 2


def test_metrics_are_text_for_prometheus_or_json(recorded: Recorded) -> None:
    code, output, errors = run("metrics", recorded.pid, "--label", "job=shop")
    assert (code, errors) == (0, "")
    assert 'asyncio_eventloop_turns_total{job="shop",loop="1"} 1e+06\n' in output
    code, output, _ = run("metrics", recorded.pid, "--format", "json")
    assert json.loads(output)["asyncio_eventloop_turns_total"][0]["value"] == 1_000_000
    assert run("metrics", recorded.pid, "--label", "job")[0] == 2
    assert run("metrics")[0] == 2


def test_metrics_without_the_library_of_prometheus_say_how_to_install_it(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from whorl.inspector import view_commands as commands
    from whorl.inspector import views

    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "whorl.inspector.views.exposition", raising=False)
    monkeypatch.delattr(views, "exposition", raising=False)
    with pytest.raises(SystemExit) as end:
        commands.metrics.main([str(recorded.pid)])
    assert end.value.code == 1
    message = "whorl: this needs prometheus_client: pip install 'whorl-loop[prometheus]'\n"
    assert capsys.readouterr() == ("", message)


def test_view_without_textual_is_plain_and_says_how_to_install_it(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from whorl.inspector import view_commands as commands

    monkeypatch.delitem(sys.modules, "whorl.inspector.views.live", raising=False)
    for name in ("textual", "textual.app", "rich", "rich.text"):  # Textual brings Rich.
        monkeypatch.setitem(sys.modules, name, None)
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    shown: list[float] = []
    monkeypatch.setattr(commands, "_repeatedly", lambda source, interval, ended: shown.append(interval))
    commands.top.main([str(recorded.pid)], standalone_mode=False)
    assert shown == [commands.INTERVAL]
    assert "pip install 'whorl-loop[top]'" in capsys.readouterr().err
