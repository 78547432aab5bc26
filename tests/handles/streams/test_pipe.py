"""Pipe: names of UNIX sockets, the ends of plain pipes, and what else can be opened."""

from __future__ import annotations

import errno
import os
import pty
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.core.conftest import MakeLoop
from tests.handles.pairs import Ended, Kind, Reader
from whorl.core import Event, Loop, RunMode
from whorl.handles import Pipe, Poll

MUCH = 4 * 1024 * 1024


@pytest.fixture
def kind(tmp_path: Path) -> Kind:
    return Kind("unix", tmp_path)


def pipe(loop: Loop) -> tuple[Pipe, Pipe]:
    """Return the two ends of a plain pipe."""
    ends = Pipe(loop), Pipe(loop)
    for end, fd in zip(ends, os.pipe(), strict=True):
        end.open(fd)
    return ends


# Names.


@pytest.mark.parametrize("how", [str, os.fsencode, Path])
def test_a_name_is_text_bytes_or_a_path(loop: Loop, tmp_path: Path, how: Any) -> None:
    path = tmp_path / "sock\u00e9t"
    server, ended = Pipe(loop), Ended()
    server.bind(how(path))
    server.listen(1, lambda server, error: server.close())
    assert server.getsockname() == str(path)
    client = Pipe(loop)
    client.connect(how(path), ended)
    loop.run()
    assert ended.results == [("Connect", None)]


def test_both_ends_know_their_names(make_loop: MakeLoop, kind: Kind) -> None:
    client, server = kind.pair(make_loop())
    assert client.getsockname() == server.getpeername() == ""
    assert client.getpeername() == server.getsockname() != ""


def test_a_path_is_removed_when_the_handle_is_closed(loop: Loop, tmp_path: Path) -> None:
    server = Pipe(loop)
    server.bind(tmp_path / "socket")
    assert (tmp_path / "socket").is_socket()
    server.close()
    assert not (tmp_path / "socket").exists()


def test_an_abstract_name_leaves_no_file(loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = b"\0whorl-abstract-%d" % os.getpid()
    server = Pipe(loop)
    server.bind(name)
    assert server.getsockname() == name
    assert list(tmp_path.iterdir()) == []


def test_an_abstract_name_may_contain_zero_bytes_and_be_given_as_text(loop: Loop) -> None:
    name = f"\0whorl\0{os.getpid()}"
    server, ended = Pipe(loop), Ended()
    server.bind(name)
    server.listen(1, lambda server, error: server.close())
    Pipe(loop).connect(name.encode(), ended)
    loop.run()
    assert ended.results == [("Connect", None)]


@pytest.mark.parametrize("prefix", ["/tmp/", "\0"])
def test_a_name_that_is_too_long_is_refused(loop: Loop, prefix: str) -> None:
    fits = 108 if prefix == "\0" else 107
    for act in (Pipe(loop).bind, Pipe(loop).connect):
        with pytest.raises(OSError, match="too long") as caught:
            act(prefix.ljust(fits + 1, "x"))
        assert caught.value.errno == errno.ENAMETOOLONG
    ended = Ended()
    Pipe(loop).connect(prefix.ljust(fits, "x"), ended)
    loop.run()
    assert ended.results == [("Connect", errno.ENOENT if prefix == "/tmp/" else errno.ECONNREFUSED)]


@pytest.mark.parametrize("name", ["", b"", "a\0b"])
def test_pipe_bind_and_connect_refuse_an_invalid_name(loop: Loop, name: Any) -> None:
    for act in (Pipe(loop).bind, Pipe(loop).connect):
        with pytest.raises(OSError, match="not a name") as caught:
            act(name)
        assert caught.value.errno == errno.EINVAL
    assert not loop.alive()


def test_a_name_is_no_number(loop: Loop) -> None:
    for act in (Pipe(loop).bind, Pipe(loop).connect):
        with pytest.raises(TypeError):
            act(5)  # type: ignore[arg-type]


def test_a_name_in_use_is_refused_and_stays(loop: Loop, kind: Kind) -> None:
    server = kind.server(loop, print)
    other = Pipe(loop)
    with pytest.raises(OSError, match="in use") as caught:
        other.bind(server.getsockname())
    assert caught.value.errno == errno.EADDRINUSE
    other.close()
    loop.run(RunMode.NOWAIT)
    assert Path(server.getsockname()).is_socket()
    assert other.fileno() == -1


def test_a_handle_is_bound_once(loop: Loop, kind: Kind) -> None:
    server = kind.server(loop, print)
    with pytest.raises(OSError, match="Invalid") as caught:
        server.bind(kind.fresh_address())
    assert caught.value.errno == errno.EINVAL


def test_a_handle_without_a_name_cannot_listen(loop: Loop) -> None:
    with pytest.raises(OSError, match="Invalid") as caught:
        Pipe(loop).listen(1, print)
    assert caught.value.errno == errno.EINVAL


def test_a_file_that_is_no_socket_is_an_error_of_the_request(loop: Loop, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = Ended()
    Pipe(loop).connect(tmp_path / "file", ended)
    assert ended.results == []
    loop.run()
    assert ended.results == [("Connect", errno.ECONNREFUSED)]


def test_a_full_backlog_is_an_error_of_the_request(loop: Loop, kind: Kind) -> None:
    server = kind.server(loop, print, backlog=0)
    ended = Ended()
    for _ in range(3):
        Pipe(loop).connect(server.getsockname(), ended)
    server.unref()
    loop.run(RunMode.NOWAIT)
    assert ("Connect", errno.EAGAIN) in ended.results


def test_pipe_without_a_socket_has_no_name(loop: Loop) -> None:
    reader, _ = pipe(loop)
    for stream in (Pipe(loop), reader):
        for ask in (stream.getsockname, stream.getpeername):
            with pytest.raises(OSError, match="Bad file") as caught:
                ask()
            assert caught.value.errno == errno.EBADF


# Plain pipes, and what else can be opened.


def test_each_end_of_a_pipe_goes_one_way(loop: Loop) -> None:
    reader, writer = pipe(loop)
    assert (reader.is_readable(), reader.is_writable()) == (True, False)
    assert (writer.is_readable(), writer.is_writable()) == (False, True)
    with pytest.raises(BrokenPipeError):
        reader.write(b"x")
    with pytest.raises(OSError, match="not connected"):
        writer.read_start(Reader())


def test_pipe_transfers_much_data(make_loop: MakeLoop) -> None:
    loop = make_loop()
    reader, writer = pipe(loop)
    notes, ended = Reader(), Ended()
    data = os.urandom(MUCH)
    reader.read_start(notes)
    writer.write(data, ended)
    writer.write(b"", ended)
    writer.write(b"end", lambda request, error: request.handle.close())
    loop.run()
    assert notes.data == data + b"end"
    assert notes.ends == [None]
    assert ended.results == [("Write", None)] * 2


def test_memory_for_a_pipe_may_be_supplied(loop: Loop) -> None:
    reader, writer = pipe(loop)
    received: list[bytes] = []
    reader.read_start(
        lambda stream, data, error: received.append(bytes(data)), lambda stream, size: bytearray(3)
    )
    writer.write(b"abcdefg", lambda request, error: request.handle.close())
    loop.run()
    assert received == [b"abc", b"def", b"g", b""]


def test_a_pipe_nobody_reads_is_an_error_of_the_write(loop: Loop) -> None:
    reader, writer = pipe(loop)
    ended = Ended()
    writer.write(bytes(MUCH), ended)
    reader.close()
    loop.run()
    writer.write(b"x", ended)
    loop.run()
    assert ended.results == [("Write", errno.EPIPE)] * 2


def test_a_plain_pipe_cannot_be_shut_down(loop: Loop) -> None:
    _, writer = pipe(loop)
    ended = Ended()
    writer.write(b"x", ended)
    writer.shutdown(ended)
    loop.run()
    assert ended.results == [("Write", None), ("Shutdown", errno.ENOTSOCK)]


def test_a_plain_pipe_cannot_connect(loop: Loop, kind: Kind) -> None:
    reader, _ = pipe(loop)
    with pytest.raises(OSError, match="non-socket") as caught:
        reader.connect(kind.fresh_address())
    assert caught.value.errno == errno.ENOTSOCK


def test_a_named_pipe_can_be_opened(loop: Loop, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    reader, writer, notes = Pipe(loop), Pipe(loop), Reader()
    reader.open(os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK))
    writer.open(os.open(tmp_path / "fifo", os.O_WRONLY))
    assert not os.get_blocking(writer.fileno())
    reader.read_start(notes)
    writer.write(b"hello", lambda request, error: request.handle.close())
    loop.run()
    assert (notes.data, notes.ends) == (b"hello", [None])


def test_a_terminal_can_be_opened(loop: Loop) -> None:
    master, slave = pty.openpty()
    stream, reader = Pipe(loop), Reader()
    stream.open(slave)
    stream.read_start(lambda stream, data, error: (reader(stream, data, error), stream.read_stop()))
    os.write(master, b"line\n")
    loop.run()
    assert reader.data == b"line\n"
    os.close(master)


def test_a_connected_socket_can_be_opened(loop: Loop) -> None:
    ours, theirs = socket.socketpair()
    stream, reader = Pipe(loop), Reader()
    stream.open(ours.detach())
    assert stream.is_readable()
    assert stream.is_writable()
    stream.read_start(reader)
    stream.write(b"there")
    with theirs:
        theirs.send(b"back")
        loop.run(RunMode.NOWAIT)
        assert theirs.recv(10) == b"there"
    loop.run()
    assert (reader.data, reader.ends) == (b"back", [None])


def test_a_file_of_another_kind_cannot_be_opened(loop: Loop, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file"):
        fd = os.open(path, os.O_RDONLY)
        with pytest.raises(OSError, match="Invalid") as caught:
            Pipe(loop).open(fd)
        assert caught.value.errno == errno.EINVAL
        os.close(fd)


def test_a_device_that_cannot_be_watched_is_refused_when_it_is_read(loop: Loop) -> None:
    stream = Pipe(loop)
    stream.open(os.open(os.devnull, os.O_RDONLY))
    for _ in range(2):
        with pytest.raises(PermissionError):
            stream.read_start(Reader())
    assert not stream.is_active()


@pytest.mark.parametrize("fd", [-1, 1_000_000])
def test_pipe_open_refuses_an_invalid_descriptor(loop: Loop, fd: int) -> None:
    with pytest.raises(OSError, match="Bad file") as caught:
        Pipe(loop).open(fd)
    assert caught.value.errno == errno.EBADF


def test_a_handle_opens_one_descriptor_only(loop: Loop) -> None:
    reader, writer = pipe(loop)
    with pytest.raises(OSError, match="busy") as caught:
        reader.open(writer.fileno())
    assert caught.value.errno == errno.EBUSY


def test_a_watched_descriptor_cannot_be_opened(loop: Loop) -> None:
    reader, writer = os.pipe()
    poll = Poll(loop, reader)
    poll.start(Event.READABLE, lambda handle, events, error: None)
    with pytest.raises(FileExistsError):
        Pipe(loop).open(reader)
    poll.close()
    os.close(reader)
    os.close(writer)


def test_a_server_of_another_process_can_be_reached(make_loop: MakeLoop, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        loop = make_loop()
        client, reader = Pipe(loop), Reader()
        client.connect(path)
        client.read_start(reader)
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"greetings")
        loop.run()
    assert (reader.data, reader.ends) == (b"greetings", [None])
    assert Path(path).is_socket()  # who only connects removes nothing
