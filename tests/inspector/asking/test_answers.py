"""The inspector's socket: its directory, its clients, what it refuses, and that nothing is left of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import whorl
import whorl.inspector
from tests.core.loop_fakes import in_child
from whorl.inspector.asking import answers, client, directory
from whorl.inspector.tables.tasks import TaskFigures


class Source:
    """A stand-in for the inspector."""

    def __init__(self) -> None:
        self.open_loops: list[Any] = []

    def loops(self) -> list[Any]:
        return self.open_loops

    def stalls(self) -> list[Any]:
        return []


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "inspected"
    monkeypatch.setenv("WHORL_INSPECT_DIR", str(place))
    return place


@pytest.fixture
def served(folder: Path) -> Iterator[answers.Answers]:
    serving = answers.Answers(Source())
    serving.start()
    yield serving
    serving.stop()


def connected(served: answers.Answers) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(30)
    place = os.open(os.path.dirname(str(served.path)), os.O_RDONLY)
    try:
        connection.connect(f"/proc/self/fd/{place}/{os.path.basename(str(served.path))}")
    except BaseException:
        connection.close()
        raise
    finally:
        os.close(place)
    return connection


def told(served: answers.Answers, line: bytes) -> tuple[Any, bool]:
    """Return the answer to a line, and whether the connection was closed after it."""
    with connected(served) as connection:
        connection.sendall(line)
        received = b""
        while not received.endswith(b"\n"):
            try:
                data = connection.recv(1 << 16)
            except ConnectionResetError:
                return None, True
            if not data:
                return None, True
            received += data
        connection.settimeout(0.2)
        try:
            is_closed = connection.recv(1) == b""
        except TimeoutError:
            is_closed = False
        except ConnectionResetError:  # with unread data
            is_closed = True
        return json.loads(received), is_closed


def test_hello_names_the_process(served: answers.Answers) -> None:
    answer, is_closed = told(served, b'{"v":1,"id":7,"do":"hello"}\n')
    assert answer["id"] == 7
    assert answer["ok"]["pid"] == os.getpid()
    assert not is_closed


def test_file_and_directory_are_the_users_own(served: answers.Answers, folder: Path) -> None:
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(Path(str(served.path)).stat().st_mode) == 0o600
    assert folder.joinpath(f"{os.getpid()}-{directory.start_time('self')}.sock").is_socket()


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"hello\n",
        b"[]\n",
        b'"tasks"\n',
        b'{"do":"exec"}\n',
        b'{"do":["tasks"]}\n',
        b'{"id":"x","do":"hello"}\n',
        b'{"v":2,"do":"hello"}\n',
        b'{"do":"stack"}\n',
        b"\xff\xfe\x00\n",
        b"[" * 60_000 + b"\n",
        b'{"do":"' + b"x" * 70_000 + b'"}',
    ],
)
def test_a_bad_line_is_an_error_and_the_end(served: answers.Answers, line: bytes) -> None:
    answer, is_closed = told(served, line)
    assert list(answer) == ["id", "error"]
    assert is_closed
    assert told(served, b'{"do":"hello"}\n')[0]["ok"]["pid"] == os.getpid()


def send_for_ever(connection: socket.socket) -> None:
    for _ in range(10_000):
        connection.sendall(b"x" * 10_000)


def test_an_endless_line_is_cut_off(served: answers.Answers) -> None:
    with connected(served) as connection:
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            send_for_ever(connection)
    assert told(served, b'{"do":"hello"}\n')[0]["ok"]["pid"] == os.getpid()


def test_requests_may_follow_each_other(served: answers.Answers) -> None:
    with connected(served) as connection, connection.makefile("rb") as lines:
        connection.sendall(b'{"id":1,"do":"hello"}\n{"id":2,"do":"tasks"}\n{"id":3,"do":"stalls"}\n')
        assert [json.loads(lines.readline())["id"] for _ in range(3)] == [1, 2, 3]


def test_clients_beyond_the_bound_are_turned_away(served: answers.Answers) -> None:
    clients = [connected(served) for _ in range(answers.MOST_CLIENTS)]
    for each in clients:
        each.sendall(b'{"do":"hello"}\n')
        assert each.recv(1 << 16)
    with connected(served) as surplus, surplus.makefile("rb") as lines:
        assert json.loads(lines.readline()) == {"id": None, "error": "8 others are asking it now"}
        assert lines.read() == b""
    with pytest.raises(client.Refusal, match="refused: 8 others are asking it now"):
        client.ask(os.getpid(), "hello")
    for each in clients:
        each.close()
    assert told(served, b'{"do":"hello"}\n')[0] is not None


def test_a_thousand_clients_leave_nothing(served: answers.Answers) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(1000):
        with contextlib.suppress(BlockingIOError):  # so many come at once that some are refused
            connected(served).close()
    answer = None
    while answer is None:
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            answer, _ = told(served, b'{"do":"hello"}\n')
    assert len(os.listdir("/proc/self/fd")) <= before + answers.MOST_CLIENTS


def test_a_table_is_sent_while_it_is_made_and_others_are_answered_meanwhile(
    served: answers.Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over = threading.Event()

    def endless(source: Any, request: Any) -> Any:
        try:
            while True:
                yield {"loop": 0, "rows": []}
        finally:
            is_over.set()

    monkeypatch.setitem(answers.TABLES, "tasks", endless)
    with connected(served) as connection, connection.makefile("rb") as lines:
        connection.sendall(b'{"id":1,"do":"tasks"}\n')
        for _ in range(1000):
            assert json.loads(lines.readline()) == {"loop": 0, "rows": []}
        assert told(served, b'{"do":"hello"}\n')[0]["ok"]["pid"] == os.getpid()
    assert is_over.wait(30)  # Nobody is left who wants it.


def test_a_sign_of_life_comes_before_the_first_row(
    served: answers.Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = threading.Event()

    def slow(loop: Any) -> Iterator[Any]:
        assert may_go_on.wait(30)
        yield None

    monkeypatch.setattr(answers.tasks, "rows", slow)
    loop = whorl.new_event_loop()
    served._source.open_loops = [loop]
    with connected(served) as connection, connection.makefile("rb") as lines:
        connection.sendall(b'{"id":1,"do":"tasks"}\n')
        assert json.loads(lines.readline()) == {"loop": 0, "rows": []}
        may_go_on.set()
        assert json.loads(lines.readline()) == {"loop": 0, "rows": []}
        assert json.loads(lines.readline()) == {"id": 1, "ok": 1}
    loop.close()


def test_a_client_that_takes_nothing_has_no_table_made(
    served: answers.Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over = threading.Event()

    def endless(source: Any, request: Any) -> Any:
        try:
            while True:
                yield {"loop": 0, "rows": ["x" * 1000]}
        finally:
            is_over.set()

    monkeypatch.setitem(answers.TABLES, "tasks", endless)
    monkeypatch.setattr(answers, "REQUEST_TIME", 0.05)
    with connected(served) as connection:
        connection.sendall(b'{"id":1,"do":"tasks"}\n')
        assert is_over.wait(30)


def test_a_slow_request_is_dropped(served: answers.Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "REQUEST_TIME", 0.05)
    with connected(served) as connection:
        connection.sendall(b'{"do":')
        assert connection.recv(1) == b""


def test_a_table_that_fails_is_an_error_without_its_text(
    served: answers.Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: Any, request: Any) -> Any:
        yield from ()
        raise OSError("a secret")

    monkeypatch.setitem(answers.TABLES, "tasks", fail)
    assert told(served, b'{"id":1,"do":"tasks"}\n')[0] == {"id": 1, "error": "tasks failed: OSError"}


def test_stop_leaves_nothing(folder: Path) -> None:
    before = sorted(os.listdir("/proc/self/fd")), threading.enumerate()
    serving = answers.Answers(Source())
    serving.start()
    with connected(serving) as connection:
        connection.sendall(b'{"do":"hello"}\n')
        assert connection.recv(1 << 16)
        serving.stop()
    assert list(folder.iterdir()) == []
    assert (sorted(os.listdir("/proc/self/fd")), threading.enumerate()) == before
    serving.stop()


def test_stop_leaves_a_long_answer_to_the_thread_that_gives_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    class SlowSource(Source):
        def loops(self) -> list[Any]:
            begun.set()
            assert may_end.wait(30)
            return []

    monkeypatch.setattr(answers, "REQUEST_TIME", 0.01)
    serving, later = answers.Answers(SlowSource()), answers.Answers(Source())
    serving.start()
    thread = serving._thread
    assert thread is not None
    with connected(serving) as connection:
        connection.sendall(b'{"id":1,"do":"tasks"}\n')
        assert begun.wait(30)
        serving.stop()
        assert list(folder.iterdir()) == []
        later.start()
        may_end.set()
        assert json.loads(connection.recv(1 << 16)) == {"id": 1, "ok": 0}
        assert connection.recv(1 << 16) == b""
    thread.join(30)
    assert serving.path is None
    assert later.path is not None
    assert os.path.exists(later.path)
    later.stop()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "file", "mode", "missing"])
def test_a_directory_that_is_not_private_is_refused_with_one_warning(
    kind: str, folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "link":
        folder.parent.joinpath("real").mkdir(0o700)
        folder.symlink_to("real")
    elif kind == "file":
        folder.write_text("")
    elif kind == "mode":
        folder.mkdir()
        folder.chmod(0o777)
    else:
        monkeypatch.setenv("WHORL_INSPECT_DIR", str(folder / "missing" / "below"))
    serving = answers.Answers(Source())
    with caplog.at_level(logging.WARNING, "whorl.inspector"):
        serving.start()
    assert serving.path is None
    assert len(caplog.records) == 1
    serving.stop()


def test_a_directory_of_another_user_is_refused(folder: Path) -> None:
    folder.mkdir(0o700)
    found = list(os.stat(folder))
    found[4] = os.geteuid() + 1
    with pytest.raises(directory.Refused, match="another user"):
        directory.check(str(folder), os.stat_result(found))


def test_files_of_dead_processes_are_removed(folder: Path) -> None:
    folder.mkdir(0o700)
    reused = folder / f"{os.getpid()}-1.sock"
    dead = folder / "4194399-1.sock"
    other = folder / "notes.txt"
    for path in (reused, dead, other):
        path.write_text("")
    serving = answers.Answers(Source())
    serving.start()
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [Path(str(serving.path)).name, "notes.txt"]
    )
    serving.stop()


def test_a_file_left_before_exec_is_replaced(folder: Path) -> None:
    folder.mkdir(0o700)
    (folder / directory.name_of(os.getpid())).write_text("")
    serving = answers.Answers(Source())
    serving.start()
    assert Path(str(serving.path)).is_socket()
    serving.stop()


def test_a_socket_may_have_a_long_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / ("d" * 200)
    monkeypatch.setenv("WHORL_INSPECT_DIR", str(place))
    serving = answers.Answers(Source())
    serving.start()
    assert client.ask(os.getpid(), "hello")["pid"] == os.getpid()
    serving.stop()


def test_only_the_user_and_root_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert answers.is_allowed(ours)
        if os.geteuid() != 0:  # root's own processes are root's
            monkeypatch.setattr(os, "geteuid", lambda: 12345)
            assert not answers.is_allowed(ours)


def test_the_inspector_answers_from_the_first_run_on(folder: Path) -> None:
    def ask_until_it_waits() -> Any:
        while True:
            found = client.rows(os.getpid(), "tasks", TaskFigures)
            if found[0][0].waits_for is not None:
                return found

    async def main() -> Any:
        return await asyncio.to_thread(ask_until_it_waits)

    with whorl.inspector.start() as inspector:
        with pytest.raises(client.NotInspected):
            client.ask(os.getpid(), "hello")
        found = whorl.run(main())
        assert inspector.tasks() == []
        assert inspector.tree() == ""
        assert inspector.handles() == []
    assert [row.waits_for.kind for row in found[0]] == ["job"]
    assert list(folder.iterdir()) == []


def test_the_socket_is_made_only_if_it_is_wanted(folder: Path) -> None:
    with whorl.inspector.start(socket=False, recording=False):
        whorl.run(asyncio.sleep(0))
        assert not folder.exists()


def test_a_forked_child_has_a_file_of_its_own_when_it_runs_a_loop(folder: Path) -> None:
    with whorl.inspector.start(recording=False) as inspector:
        whorl.run(asyncio.sleep(0))
        assert inspector.answers is not None
        assert inspector.answers._listener is not None
        listener = inspector.answers._listener.fileno()
        mine = {path.name for path in folder.iterdir()}
        assert len(mine) == 1

        def child() -> None:
            assert {path.name for path in folder.iterdir()} == mine
            assert inspector.answers is not None
            assert inspector.answers.path is None
            with pytest.raises(OSError, match="Bad file"):
                os.fstat(listener)
            whorl.run(asyncio.sleep(0))
            assert len({path.name for path in folder.iterdir()} - mine) == 1
            inspector.stop()

        assert in_child(child) == 0
        assert {path.name for path in folder.iterdir()} == mine
    assert list(folder.iterdir()) == []
