"""Beginning to inspect a process that runs."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.inspector.asking.test_commands import run
from whorl.inspector.asking import attach, client, finding, places

pytest.importorskip("click", reason="the command line needs Click")

can_attach = pytest.mark.skipif(sys.version_info < (3, 14), reason="Python's remote debugging came with 3.14")

SERVER = """
import asyncio, whorl

async def serve(reader, writer):
    while line := await reader.readline():
        writer.write(line)

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

whorl.run(main())
"""
OTHER = """
import asyncio

async def main():
    print("idle", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""

Begin = Callable[..., "tuple[subprocess.Popen[str], str]"]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Start a program that nobody inspects; return it, and its first line."""
    monkeypatch.setenv("WHORL_INSPECT_DIR", str(tmp_path / "inspected"))
    monkeypatch.delenv("WHORL_INSPECT", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    begun = []

    def begin(program: str, *options: str, **variables: str) -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            [sys.executable, *options, "-c", program],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | variables,
        )
        begun.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    yield begin
    for process in begun:
        process.kill()
        process.communicate()


@can_attach
def test_idle_server_is_inspected_and_its_connections_stay(begin: Begin, tmp_path: Path) -> None:
    process, port = begin(SERVER)
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        connection.settimeout(60)
        for line in (b"before\n", b"after\n", b"again\n"):
            connection.sendall(line)
            assert connection.recv(100) == line
            code, output, errors = run("attach", process.pid)
            assert (code, output, errors) == (0, f"process {process.pid} is inspected\n", "")
    assert client.ask(process.pid, "hello")["pid"] == process.pid
    found = finding.recording_of(process.pid)
    assert (found.state, len(found.recording.loops())) == ("running", 1)
    assert list(tmp_path.glob("whorl-attach-*")) == []


@can_attach
def test_process_without_whorl_is_refused_and_gets_none(begin: Begin) -> None:
    process, _ = begin(OTHER)
    code, _, errors = run("attach", process.pid)
    assert code == 6
    assert "does not use Whorl" in errors
    assert process.poll() is None


@can_attach
def test_inspector_that_runs_already_goes_on_as_it_is(begin: Begin) -> None:
    process, _ = begin(SERVER.replace("asyncio, whorl", "asyncio, whorl\nwhorl.inspector.start(threshold=3)"))
    code, output, _ = run("attach", process.pid)
    assert (code, output) == (0, f"process {process.pid} is inspected\n")


@can_attach
def test_inspector_that_cannot_begin_says_why(begin: Begin) -> None:
    refuses = "def checked(**_): raise ValueError('no settings')\nwhorl.inspector.settings.checked = checked"
    process, _ = begin(SERVER.replace("asyncio, whorl", f"asyncio, whorl.inspector.settings\n{refuses}"))
    code, _, errors = run("attach", process.pid)
    assert code == 6
    assert "ValueError: no settings" in errors


@can_attach
def test_process_that_forbids_it_is_refused(begin: Begin) -> None:
    process, _ = begin(SERVER, PYTHON_DISABLE_REMOTE_DEBUG="1")
    code, _, errors = run("attach", process.pid)
    assert code == 6
    assert "PYTHON_DISABLE_REMOTE_DEBUG" in errors
    process, _ = begin(SERVER, "-X", "disable-remote-debug")
    code, _, errors = run("attach", process.pid)
    assert code == 6
    assert "-X disable-remote-debug" in errors


@can_attach
def test_process_that_executes_nothing_is_told_and_begins_later(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, _ = begin("import time; print('sleeps', flush=True); time.sleep(1000)")
    monkeypatch.setattr(attach, "PATIENCE", 0.5)
    with pytest.raises(attach.Refused, match=r"has not begun yet.*It will"):
        attach.attach(process.pid)
    assert sorted(path.name for path in next(tmp_path.glob("whorl-attach-*")).iterdir()) == [
        "begin.py",
        "late",
    ]


@can_attach
def test_python_that_does_not_start_in_time_is_not_said_to_be_old(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, _ = begin(OTHER)
    monkeypatch.setattr(attach, "LONGEST_START", 0.0)
    with pytest.raises(attach.Refused, match="does not run: it has not ended after 0 s"):
        attach.attach(process.pid)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="newer ones have remote debugging")
def test_older_python_is_refused(begin: Begin) -> None:
    process, _ = begin(OTHER)
    code, _, errors = run("attach", process.pid)
    assert code == 6
    assert f"runs Python {sys.version.split()[0]}" in errors
    assert "WHORL_INSPECT=1" in errors


def test_program_that_is_no_python_is_refused() -> None:
    with subprocess.Popen([shutil.which("sleep") or "sleep", "1000"]) as process:
        try:
            while os.path.samefile(f"/proc/{process.pid}/exe", sys.executable):
                pass
            code, _, errors = run("attach", process.pid)
        finally:
            process.kill()
    assert code == 6
    assert "does not run Python" in errors


def test_process_of_a_container_is_refused(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    process, _ = begin(OTHER)
    monkeypatch.setattr(places, "own_number", lambda pid: 7)
    with pytest.raises(attach.Refused, match="inside of its container"):
        attach.attach(process.pid)


def test_no_process_is_code_3_and_another_users_code_4(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("attach", 4194300)[0] == 3
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(client.NotOurs):
        attach.attach(os.getpid())
