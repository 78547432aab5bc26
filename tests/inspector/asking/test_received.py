"""Answers of a process that may be another user's: whatever it sends, a command says one sentence."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from whorl.inspector.asking import client, directory
from whorl.inspector.asking.received import Unfit, row_of
from whorl.inspector.tables.handles import HandleFigures
from whorl.inspector.tables.tasks import TaskFigures

pytest.importorskip("click", reason="the command line needs Click")

from click.testing import CliRunner, Result

from whorl.cli import commands

Serve = Callable[[Callable[[socket.socket], object]], None]

UGLY = "\x1b[2J\x1b]0;owned\x07\x9b31m\n\u202ex\ud800"
TASK: dict[str, Any] = {
    "id": 1,
    "name": "Task-1",
    "coro": "main",
    "state": "waiting",
    "where": ["app.py", 3, "main"],
    "waits_for": {"kind": "timer", "text": "a sleep", "tasks": []},
    "parent": None,
}
HANDLE: dict[str, Any] = {"kind": "tcp", "fd": 5, "state": "open", "local": "a", "peer": None, "paused": ""}


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Answer the requests to this process by a function of the connection."""
    monkeypatch.setenv("WHORL_INSPECT_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    listener = socket.socket(socket.AF_UNIX)
    threads = []

    def serve(answer: Callable[[socket.socket], object]) -> None:
        def run() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    try:
                        connection.recv(1 << 16)
                        answer(connection)
                    except OSError:
                        pass  # The client has seen enough.

        listener.bind(directory.name_of(os.getpid()))
        listener.listen()
        threads.append(threading.Thread(target=run))
        threads[0].start()

    yield serve
    if threads:
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    for thread in threads:
        thread.join()


def command(*arguments: str) -> Result:
    return CliRunner().invoke(commands, [*arguments, str(os.getpid())])


def ugly(thing: Any) -> Any:
    """Return JSON with an ugly text in the place of each text."""
    if isinstance(thing, dict):
        return {name: ugly(value) for name, value in thing.items()}
    if isinstance(thing, list):
        return [ugly(value) for value in thing]
    return UGLY if isinstance(thing, str) else thing


def table(*rows: Any) -> Callable[[socket.socket], object]:
    lines = ({"loop": 0, "rows": rows}, {"id": 1, "ok": 1})
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return lambda connection: connection.sendall(data)


@pytest.mark.parametrize(
    ("arguments", "row"),
    [
        (["tasks"], TASK),
        (["tasks", "--tree"], TASK),
        (["tasks", "--json"], TASK),
        (["handles"], HANDLE),
        (["handles", "--json"], HANDLE),
    ],
)
def test_no_control_character_reaches_the_terminal(
    serve: Serve, arguments: list[str], row: dict[str, Any]
) -> None:
    serve(table(ugly(row)))
    found = command(*arguments)
    assert found.exit_code == 0, found.output
    assert "owned" in found.output
    assert not [line for line in found.output.split("\n") if not line.isprintable()]


def test_error_of_another_process_is_shown_without_control_characters(serve: Serve) -> None:
    serve(lambda connection: connection.sendall(json.dumps({"error": UGLY}).encode() + b"\n"))
    for name in ("tasks", "handles", "stalls"):
        found = command(name)
        assert found.exit_code == 1
        assert "refused: \\x1b[2J" in found.output
        assert found.output.rstrip("\n").isprintable()


@pytest.mark.parametrize("name", ["tasks", "handles", "stalls"])
@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"5\n",
        b'{"ok":-1}\n',
        b'{"ok":1e999}\n',
        b'{"ok":[5]}\n',
        b'{"error":{}}\n',
        b'{"rows":[],"loop":99999999999}\n',
        b'{"rows":5,"loop":0}\n',
        b'{"rows":[{}],"loop":0}\n',
        b'{"rows":[[]],"loop":true}\n',
        b"[" * 200_000 + b"\n",
        b'{"ok":' + b"9" * 5000 + b"}\n",
        b"\xff\n",
        b'{"rows":[',
    ],
)
def test_answer_that_is_none_is_one_sentence(serve: Serve, name: str, line: bytes) -> None:
    serve(lambda connection: connection.sendall(line))
    found = command(name)
    assert type(found.exception) is SystemExit
    assert found.exit_code in (1, 5), found.output
    assert found.output.startswith("whorl: ")
    assert found.output.count("\n") == 1


@pytest.mark.parametrize(
    "value", [None, -1, 10**30, 1e308, float("nan"), "x", "\ud800", [], {}, [[[]]], True, [1, 2, 3], 0.5]
)
def test_field_of_another_type_is_refused_or_can_be_shown(serve: Serve, value: Any) -> None:
    for kind, row in ((TaskFigures, TASK), (HandleFigures, HANDLE)):
        for name in row:
            try:
                found = row_of(kind, row | {name: value})
            except Unfit:
                continue
            assert row_of(kind, json.loads(json.dumps(found, default=vars)))
    serve(table(TASK | {"busy_ns": value, "steps": value, "longest_ns": value}))
    for arguments in (["tasks"], ["tasks", "--tree"], ["tasks", "--json"]):
        assert command(*arguments).exit_code in (0, 1)


def test_unknown_field_is_left_out_and_a_missing_one_is_refused() -> None:
    assert row_of(HandleFigures, HANDLE | {"later": 5}) == row_of(HandleFigures, HANDLE)
    with pytest.raises(Unfit):
        row_of(HandleFigures, {"kind": "tcp"})


def test_answer_that_comes_byte_by_byte_is_given_up(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PATIENCE", 0.05)

    def drip(connection: socket.socket) -> None:
        while True:
            connection.sendall(b" ")

    serve(drip)
    found = command("tasks")
    assert found.exit_code == 5
    assert "did not answer" in found.output


def test_answer_without_an_end_is_given_up(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LONGEST_TIME", 0.05)

    def repeat(connection: socket.socket) -> None:
        while True:
            connection.sendall(b'{"loop":0,"rows":[]}\n')

    serve(repeat)
    found = command("tasks")
    assert found.exit_code == 5
    assert "did not end its answer within 0.05 s" in found.output


def test_line_without_an_end_takes_no_memory(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LONGEST_LINE", 100_000)

    def fill(connection: socket.socket) -> None:
        while True:
            connection.sendall(b" " * 10_000)

    serve(fill)
    assert command("tasks").exit_code == 1


@pytest.mark.parametrize(("name", "hint"), [("tasks", "--summary"), ("handles", "so nothing is shown\n")])
def test_answer_of_very_many_rows_is_given_up_in_a_sentence(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, name: str, hint: str
) -> None:
    monkeypatch.setattr(client, "LONGEST_ANSWER", 1 << 20)
    row = TASK if name == "tasks" else HANDLE
    line = json.dumps({"loop": 0, "rows": [row] * 50}).encode() + b"\n"

    def repeat(connection: socket.socket) -> None:
        for _ in range(1000):  # 8 MB or more
            connection.sendall(line)
        connection.sendall(b'{"ok":1}\n')

    serve(repeat)
    found = command(name)
    assert found.exit_code == 1
    assert found.output.startswith(f"whorl: process {os.getpid()} sent more than 1 MiB")
    assert hint in found.output
    assert found.output.count("\n") == 1


@pytest.mark.parametrize("columns", ["", "80"])
def test_long_cell_of_one_row_pads_no_other_row(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    longest = TASK | {"name": "n" * 4000, "coro": "c" * 4000, "where": ["/" + "f" * 4000, 1, "main"]}
    rows = [longest, *[TASK] * 20]
    serve(table(*rows))
    found = command("tasks")
    lines = found.output.split("\n")
    assert found.exit_code == 0
    assert sum(len(line) for line in lines if "Task-1" in line) < 20 * 300
    if columns:
        assert max(map(len, lines)) == 80
    else:
        assert longest["name"] in found.output
        assert longest["coro"] in found.output


def test_handles_of_the_loop_are_only_counted_unless_all_are_asked_for(serve: Serve) -> None:
    kinds = ["wakeup", "signals", "namelookups", "tcp"]
    serve(table(*(HANDLE | {"kind": kind, "fd": fd} for fd, kind in enumerate(kinds))))
    lines = command("handles").output.split("\n")
    assert lines[0] == f"process {os.getpid()}: 1 handle; --all shows 3 more, of the loop's own"
    assert [line.split()[1] for line in lines[3:-1]] == ["tcp"]
    for arguments in (["handles", "--all"], ["handles", "--json"]):
        found = command(*arguments).output
        assert all(kind in found for kind in kinds)
        assert "more" not in found
