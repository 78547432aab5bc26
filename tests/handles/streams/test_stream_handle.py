"""The methods that TCP and Pipe share: reading, writing, connecting, accepting, and the end of requests."""

from __future__ import annotations

import contextvars
import errno
import hashlib
import os
import random
import socket
from collections.abc import Callable
from typing import Any

import pytest

from tests.core.conftest import MakeLoop
from tests.core.loop_fakes import run_turns
from tests.handles.pairs import Ended, Kind, Reader, Stream
from whorl.core import Loop, RunMode
from whorl.handles import Check, Pipe, Timer, Write

#: More than the kernel's buffers of a connection hold.
MUCH = 32 * 1024 * 1024


def run_machine(loop: Loop) -> None:
    """Make one turn in libuv's order."""
    loop.run(RunMode.NOWAIT)


IN_BOTH_ORDERS = pytest.mark.parametrize("run_once", [run_machine, run_turns], ids=["machine", "asyncio"])
ERRORS = pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])


def drain(stream: Stream) -> int:
    """Read the available data with plain system calls; how many bytes that was."""
    size = 0
    with socket.socket(fileno=os.dup(stream.fileno())) as sock:
        while True:
            try:
                size += len(sock.recv(1 << 20))
            except BlockingIOError:
                return size


def fill(stream: Stream) -> int:
    """Write until the kernel takes no more; how many bytes that was."""
    size = 0
    while True:
        try:
            size += stream.try_write(bytes(1 << 20))
        except BlockingIOError:
            return size


# Echo.


def echo_server(loop: Loop, kind: Kind) -> Stream:
    """Return a server that sends back what it gets, and ends when its peer ends."""

    def on_connection(server: Stream, error: OSError | None) -> None:
        assert error is None
        connection = kind.handle(loop)
        server.accept(connection)
        connection.read_start(on_read)

    def on_read(connection: Stream, data: bytes, error: OSError | None) -> None:
        assert error is None
        if data:
            connection.write(data)
        else:
            connection.shutdown(lambda request, error: request.handle.close())

    return kind.server(loop, on_connection, backlog=1024)


@pytest.mark.parametrize("kind", ["tcp", "unix", "abstract"], indirect=True)
@pytest.mark.parametrize(("clients", "size"), [(200, 3_000), (20, 300_000), (2, 5_000_000)])
def test_every_byte_of_every_connection_comes_back_to_it(
    make_loop: MakeLoop, kind: Kind, clients: int, size: int
) -> None:
    loop = make_loop()
    server = echo_server(loop, kind)
    dice = random.Random(clients)
    expected: dict[Stream, str] = {}
    received: dict[Stream, Any] = {}

    def on_connect(request: Any, error: OSError | None) -> None:
        assert error is None

    def on_read(client: Stream, data: bytes, error: OSError | None) -> None:
        assert error is None
        if data:
            received[client].update(data)
            return
        client.close()
        open_clients.discard(client)
        if not open_clients:
            server.close()

    open_clients = {kind.handle(loop) for _ in range(clients)}
    for client in open_clients:
        payload = dice.randbytes(size)
        expected[client] = hashlib.sha256(payload).hexdigest()
        received[client] = hashlib.sha256()
        client.connect(server.getsockname(), on_connect)
        client.read_start(on_read)
        for cut in range(0, size, 70_000):
            client.write(payload[cut : cut + 70_000])
        client.shutdown()
    assert not loop.run()
    assert {client: hashed.hexdigest() for client, hashed in received.items()} == expected
    assert loop.walk() == []
    assert loop.metrics().active_requests == 0


def test_connections_work_in_asyncios_order_too(make_loop: MakeLoop, kind: Kind) -> None:
    loop = make_loop()
    server = echo_server(loop, kind)
    client = kind.handle(loop)
    reader = Reader()
    client.connect(server.getsockname())
    client.read_start(reader)
    client.write(b"x" * 100_000)
    client.shutdown()
    while not reader.ends:
        run_turns(loop)
    assert reader.data == b"x" * 100_000


# Reading.


def test_stream_reads_all_data_up_to_the_end(make_loop: MakeLoop, kind: Kind) -> None:
    loop = make_loop()
    client, server = kind.pair(loop)
    reader = Reader()
    server.read_start(reader)
    client.write(b"hello ")
    client.write(b"world")
    client.close()
    loop.run()
    assert (reader.data, reader.ends) == (b"hello world", [None])
    assert not server.is_active()


def test_the_end_is_told_again_to_who_reads_again(loop: Loop, kind: Kind) -> None:
    client, server = kind.pair(loop)
    client.shutdown()
    reader = Reader()
    server.read_start(reader)
    loop.run()
    server.read_start(reader)
    loop.run()
    assert reader.ends == [None, None]


def test_a_handle_that_reads_cannot_start_again(loop: Loop, kind: Kind) -> None:
    client, _ = kind.pair(loop)
    client.read_start(Reader())
    with pytest.raises(OSError, match="already") as caught:
        client.read_start(Reader())
    assert caught.value.errno == errno.EALREADY


def test_a_handle_that_is_not_connected_cannot_read(loop: Loop, kind: Kind) -> None:
    stream = kind.handle(loop)
    for fresh in (stream, kind.server(loop, print)):
        with pytest.raises(OSError, match="not connected") as caught:
            fresh.read_start(Reader())
        assert caught.value.errno == errno.ENOTCONN
        assert not fresh.is_readable()


def test_data_that_arrives_after_read_stop_waits(make_loop: MakeLoop, kind: Kind) -> None:
    loop = make_loop()
    client, server = kind.pair(loop)
    reader = Reader()

    def read_once(stream: Stream, data: bytes, error: OSError | None) -> None:
        reader(stream, data, error)
        stream.read_stop()

    server.read_start(read_once)
    client.write(b"first")
    loop.run()
    client.write(b"second")
    loop.run()
    assert reader.data == b"first"
    assert not server.is_active()
    server.read_start(read_once)
    loop.run()
    assert reader.data == b"firstsecond"


def test_the_caller_may_supply_the_memory(make_loop: MakeLoop, kind: Kind) -> None:
    loop = make_loop()
    client, server = kind.pair(loop)
    memory = bytearray(1000)
    sizes: list[int] = []
    received: list[bytes] = []
    ends: list[int | None] = []

    def give(stream: Stream, size: int) -> bytearray:
        assert stream is server
        sizes.append(size)
        return memory

    def note(stream: Stream, data: Any, error: OSError | None) -> None:
        if not data:
            ends.append(error.errno if error else None)
            return
        assert isinstance(data, memoryview)
        assert data.obj is memory
        received.append(bytes(data))

    server.read_start(note, give)
    sent = random.Random(1).randbytes(100_000)
    client.write(sent)
    client.shutdown()
    loop.run()
    assert b"".join(received) == sent
    assert max(map(len, received)) == 1000
    assert ends == [None]
    assert min(sizes) > 0


def test_memory_without_room_is_an_error_of_the_read(loop: Loop, kind: Kind) -> None:
    client, server = kind.pair(loop)
    reader = Reader()
    server.read_start(reader, lambda stream, size: bytearray())
    client.write(b"x")
    loop.run()
    assert reader.ends == [errno.ENOBUFS]
    assert not server.is_active()
    server.read_start(reader)
    loop.run(RunMode.NOWAIT)
    assert reader.data == b"x"


@pytest.mark.parametrize("memory", [b"read only", None, 5])
def test_memory_that_cannot_be_written_ends_the_reading(loop: Loop, kind: Kind, memory: Any) -> None:
    client, server = kind.pair(loop)
    server.read_start(Reader(), lambda stream, size: memory)
    client.write(b"x")
    with pytest.raises((TypeError, BufferError)):
        loop.run()
    loop.run()
    assert not server.is_active()


def test_a_handle_closed_while_it_asks_for_memory_is_called_no_more(loop: Loop, kind: Kind) -> None:
    client, server = kind.pair(loop)
    reader = Reader()

    def close(stream: Stream, size: int) -> bytearray:
        stream.close()
        return bytearray(10)

    server.read_start(reader, close)
    client.write(b"x")
    loop.run()
    assert (reader.chunks, reader.ends) == ([], [])


def test_much_data_is_read_in_turns_with_others(make_loop: MakeLoop, kind: Kind) -> None:
    loop = make_loop()
    busy, busy_server = kind.pair(loop)
    quiet, quiet_server = kind.pair(loop)
    order: list[str] = []

    def note(stream: Stream, data: bytes, error: OSError | None) -> None:
        order.append(stream.data)
        if stream is quiet_server:
            stream.close()
            busy.close()
            busy_server.close()

    for stream, name in ((busy_server, "busy"), (quiet_server, "quiet")):
        stream.data = name
    busy.write(b"x" * MUCH)
    quiet.write(b"y")
    busy_server.read_start(note)
    quiet_server.read_start(note)
    loop.run()
    assert "quiet" in order
    assert order.count("busy") <= 8


def test_a_reset_by_the_peer_is_an_error_of_the_reader(loop: Loop, tmp_path: Any) -> None:
    client, server = Kind("tcp", tmp_path).pair(loop)
    reader = Reader()
    server.read_start(reader)
    client.write(b"x")
    loop.run(RunMode.NOWAIT)
    client.close_reset()
    loop.run()
    assert reader.ends == [errno.ECONNRESET]
    assert not server.is_active()


# Writing.


def test_a_write_ends_after_the_call_that_began_it(loop: Loop, kind: Kind) -> None:
    client, _ = kind.pair(loop)
    seen: list[Any] = []
    request = client.write(b"x", lambda request, error: seen.append((request, error)))
    assert isinstance(request, Write)
    assert (request.handle, request.is_pending(), seen) == (client, True, [])
    assert loop.alive()
    loop.run()
    assert seen == [(request, None)]
    assert not request.is_pending()
    assert not request.cancel()


def test_writes_end_in_order_when_the_kernel_has_taken_them(make_loop: MakeLoop, kind: Kind) -> None:
    loop = make_loop()
    client, server = kind.pair(loop)
    seen: list[int] = []
    sizes = [10, MUCH, 0, 20, MUCH // 2, 0]
    for number, size in enumerate(sizes):
        client.write(b"x" * size, lambda request, error, number=number: seen.append(number))
    assert 0 < client.write_queue_size <= sum(sizes)
    for _ in range(3):
        loop.run(RunMode.NOWAIT)
    assert seen == [0]
    received = 0

    def count(stream: Stream, data: bytes, error: OSError | None) -> None:
        nonlocal received
        received += len(data)
        if received == sum(sizes):
            stream.read_stop()

    server.read_start(count)
    loop.run()
    assert seen == [0, 1, 2, 3, 4, 5]
    assert client.write_queue_size == 0


def test_write_copies_mutable_data(loop: Loop, kind: Kind) -> None:
    client, server = kind.pair(loop)
    reader = Reader()
    server.read_start(reader)
    data = bytearray(b"a") * (MUCH // 2)
    client.write(data)
    assert client.write_queue_size > 0
    data[:] = b"b" * len(data)
    data.clear()  # nothing holds its memory
    client.shutdown()
    loop.run()
    assert len(reader.data) == MUCH // 2
    assert reader.data.count(b"a") == MUCH // 2


@pytest.mark.parametrize(
    ("data", "sent"),
    [
        (memoryview(b"abcdef")[::2], b"ace"),
        (memoryview(b"abcdef"), b"abcdef"),
        (memoryview(b"\1\0\0\0\2\0\0\0").cast("I"), b"\1\0\0\0\2\0\0\0"),
        (bytearray(b"xyz"), b"xyz"),
        (memoryview(b"").cast("I"), b""),
    ],
    ids=["strided", "view", "integers", "bytearray", "nothing"],
)
def test_write_accepts_any_bytes_like_object(loop: Loop, kind: Kind, data: Any, sent: bytes) -> None:
    client, server = kind.pair(loop)
    reader = Reader()
    server.read_start(reader)
    client.write(data)
    client.shutdown()
    loop.run()
    assert reader.data == sent


@pytest.mark.parametrize("data", ["text", None, 5, [b"x"]])
def test_write_refuses_other_types_than_bytes(loop: Loop, kind: Kind, data: Any) -> None:
    client, _ = kind.pair(loop)
    with pytest.raises(TypeError):
        client.write(data)
    with pytest.raises(TypeError):
        client.try_write(data)
    with pytest.raises(TypeError, match="callable"):
        client.write(b"x", "callback")  # type: ignore[arg-type]
    assert not loop.alive()


def test_try_write_sends_what_the_kernel_takes(loop: Loop, kind: Kind) -> None:
    client, server = kind.pair(loop)
    assert client.try_write(b"hello") == 5
    assert drain(server) == 5
    taken = fill(client)
    assert taken > 0
    assert drain(server) == taken
    assert not loop.alive()


def test_try_write_does_not_overtake(loop: Loop, kind: Kind) -> None:
    client, _ = kind.pair(loop)
    client.write(bytes(MUCH))
    with pytest.raises(BlockingIOError):
        client.try_write(b"x")


def test_a_write_to_who_is_gone_is_an_error_of_the_request(loop: Loop, kind: Kind) -> None:
    client, server = kind.pair(loop)
    ended = Ended()
    client.write(bytes(MUCH), ended)
    client.write(b"more", ended)
    server.close()
    loop.run()
    client.write(b"late", ended)
    loop.run()
    assert [name for name, _ in ended.results] == ["Write"] * 3
    assert {code for _, code in ended.results} <= {errno.EPIPE, errno.ECONNRESET}
    assert client.write_queue_size == 0


def test_a_handle_that_is_not_connected_cannot_write(loop: Loop, kind: Kind) -> None:
    stream = kind.handle(loop)
    for attempt in (stream.write, stream.try_write):
        with pytest.raises(OSError, match="Bad file") as caught:
            attempt(b"x")
        assert caught.value.errno == errno.EBADF
    with pytest.raises(BrokenPipeError):
        kind.server(loop, print).write(b"x")
    assert not stream.is_writable()


# Shutting down.


def test_shutdown_waits_for_the_writes(make_loop: MakeLoop, kind: Kind) -> None:
    loop = make_loop()
    client, server = kind.pair(loop)
    reader, ended = Reader(), Ended()
    client.write(b"x" * MUCH, ended)
    client.shutdown(ended)
    assert ended.results == []
    server.read_start(reader)
    loop.run()
    assert ended.results == [("Write", None), ("Shutdown", None)]
    assert (len(reader.data), reader.ends) == (MUCH, [None])


def test_after_shutdown_nothing_can_be_written(loop: Loop, kind: Kind) -> None:
    client, server = kind.pair(loop)
    client.shutdown()
    assert not client.is_writable()
    assert client.is_readable()
    with pytest.raises(BrokenPipeError):
        client.write(b"x")
    with pytest.raises(OSError, match="not connected") as caught:
        client.shutdown()
    assert caught.value.errno == errno.ENOTCONN
    reader = Reader()
    client.read_start(reader)
    server.write(b"still")
    server.close()
    loop.run()
    assert reader.data == b"still"


# Connecting.


def test_a_refused_connection_is_an_error_of_the_request(loop: Loop, kind: Kind) -> None:
    server = kind.server(loop, print)
    address = server.getsockname()
    server.close()
    client = kind.handle(loop)
    ended = Ended()
    client.connect(address, ended)
    if kind.name == "tcp":
        client.write(b"x", ended)
        client.shutdown(ended)
        expected = [
            ("Connect", errno.ECONNREFUSED), ("Write", errno.ECANCELED), ("Shutdown", errno.ECANCELED)
        ]  # fmt: skip
    else:  # The system says so at once.
        with pytest.raises(BrokenPipeError):
            client.write(b"x", ended)
        expected = [("Connect", errno.ENOENT)]
    assert ended.results == []
    loop.run()
    assert ended.results == expected
    assert not client.is_readable()
    assert not client.is_writable()


@pytest.mark.parametrize("kind", ["unix", "abstract"], indirect=True)
def test_a_handle_can_connect_after_it_was_refused(make_loop: MakeLoop, kind: Kind) -> None:
    loop = make_loop()
    server = kind.server(loop, print)
    nowhere = server.getsockname()
    server.close()
    loop.run()
    client = kind.handle(loop)
    ended, reader = Ended(), Reader()

    def on_read(stream: Stream, data: bytes, error: OSError | None) -> None:
        reader(stream, data, error)
        if not data:
            server.close()  # not before: a connection still in its backlog would end with it

    client.connect(nowhere, ended)
    loop.run()
    server = echo_server(loop, kind)
    client.connect(server.getsockname(), ended)
    client.read_start(on_read)
    client.write(b"again")
    client.shutdown()
    loop.run()
    assert ended.results[1] == ("Connect", None)
    assert reader.data == b"again"


def test_writes_before_the_connection_are_sent_after_it(make_loop: MakeLoop, kind: Kind) -> None:
    loop = make_loop()
    server = echo_server(loop, kind)
    client = kind.handle(loop)
    ended, reader = Ended(), Reader()
    client.connect(server.getsockname(), ended)
    client.read_start(reader)
    data = bytearray(b"early")
    client.write(data, ended)
    data[:] = b"wrong"
    with pytest.raises(BlockingIOError):
        client.try_write(b"x")
    assert client.write_queue_size == 5
    client.shutdown(ended)
    while not reader.ends:
        loop.run(RunMode.ONCE)
    assert ended.results == [("Connect", None), ("Write", None), ("Shutdown", None)]
    assert reader.data == b"early"


def test_a_handle_connects_once_at_a_time(loop: Loop, kind: Kind) -> None:
    server = kind.server(loop, print)
    client = kind.handle(loop)
    client.connect(server.getsockname())
    with pytest.raises(OSError, match="already") as caught:
        client.connect(server.getsockname())
    assert caught.value.errno == errno.EALREADY


def test_a_handle_that_is_connected_cannot_connect_again(loop: Loop, kind: Kind) -> None:
    server = kind.server(loop, print)
    server.unref()
    for stream in kind.pair(loop):
        with pytest.raises(OSError, match="already connected") as caught:
            stream.connect(server.getsockname())
        assert caught.value.errno == errno.EISCONN
    assert not loop.alive()


def test_a_connection_in_the_making_keeps_the_loop_alive(loop: Loop, kind: Kind) -> None:
    server = kind.server(loop, print)
    server.unref()
    client = kind.handle(loop)
    seen: list[str] = []
    client.connect(server.getsockname(), lambda request, error: seen.append("connected"))
    assert not client.is_active()
    loop.run()
    assert seen == ["connected"]


# Accepting.


def test_a_server_waits_until_a_connection_is_accepted(make_loop: MakeLoop, kind: Kind) -> None:
    loop = make_loop()
    seen: list[Stream] = []
    server = kind.server(loop, lambda server, error: seen.append(server))
    clients = [kind.handle(loop) for _ in range(3)]
    for client in clients:
        client.connect(server.getsockname())
    for _ in range(5):
        loop.run(RunMode.NOWAIT)
    assert seen == [server]
    for count in (2, 3, 3):
        server.accept(kind.handle(loop))
        for _ in range(5):
            loop.run(RunMode.NOWAIT)
        assert len(seen) == count
    with pytest.raises(BlockingIOError):
        server.accept(kind.handle(loop))


def test_only_a_fresh_handle_of_the_same_loop_can_be_the_connection(make_loop: MakeLoop, kind: Kind) -> None:
    loop = make_loop()
    seen: list[Stream] = []
    server = kind.server(loop, lambda server, error: seen.append(server))
    client = kind.handle(loop)
    client.connect(server.getsockname())
    while not seen:
        loop.run(RunMode.ONCE)
    with pytest.raises(OSError, match="busy") as caught:
        server.accept(client)
    assert caught.value.errno == errno.EBUSY
    with pytest.raises(ValueError, match="another loop"):
        server.accept(kind.handle(make_loop()))
    with pytest.raises(TypeError):
        server.accept(object())  # type: ignore[arg-type]
    connection = kind.handle(loop)
    server.accept(connection)
    assert connection.is_readable()
    assert connection.is_writable()


def test_closing_a_server_closes_what_was_not_accepted(make_loop: MakeLoop, kind: Kind) -> None:
    loop = make_loop()
    server = kind.server(loop, lambda server, error: server.close())
    client = kind.handle(loop)
    reader = Reader()
    client.connect(server.getsockname())
    client.read_start(reader)
    loop.run()
    assert reader.data == b""
    assert len(reader.ends) == 1


def test_a_listening_handle_keeps_the_loop_alive_unless_unreferenced(loop: Loop, kind: Kind) -> None:
    server = kind.server(loop, print)
    assert server.is_active()
    assert loop.alive()
    assert loop.walk() == [server]
    server.unref()
    assert not loop.alive()
    server.close()
    assert not server.is_active()


def test_listening_again_replaces_the_callback(loop: Loop, kind: Kind) -> None:
    seen: list[str] = []
    server = kind.server(loop, lambda server, error: seen.append("old"))
    server.listen(10, lambda server, error: (seen.append("new"), server.close()))
    kind.handle(loop).connect(server.getsockname())
    loop.run()
    assert seen == ["new"]


# Closing.


def test_requests_in_flight_end_before_the_handle_is_closed(make_loop: MakeLoop, kind: Kind) -> None:
    loop = make_loop()
    client, _ = kind.pair(loop)
    ended = Ended()
    client.write(b"taken at once", ended)
    client.write(bytes(MUCH), ended)
    client.write(b"", ended)
    client.shutdown(ended)
    client.close(lambda handle: ended.results.append(("closed", None)))
    assert ended.results == []
    assert client.fileno() == -1
    loop.run()
    assert ended.results == [
        ("Write", None),
        ("Write", errno.ECANCELED),
        ("Write", errno.ECANCELED),
        ("Shutdown", errno.ECANCELED),
        ("closed", None),
    ]
    assert loop.metrics().active_requests == 0


def test_a_connection_in_the_making_is_cancelled(loop: Loop, kind: Kind) -> None:
    server = kind.server(loop, print)
    server.unref()
    client = kind.handle(loop)
    ended = Ended()
    client.connect(server.getsockname(), ended)
    client.write(b"x", ended)
    client.close(lambda handle: ended.results.append(("closed", None)))
    loop.run(RunMode.NOWAIT)
    assert ended.results == [("Connect", errno.ECANCELED), ("Write", errno.ECANCELED), ("closed", None)]


def test_a_handle_closed_in_its_read_callback_is_called_no_more(loop: Loop, kind: Kind) -> None:
    client, server = kind.pair(loop)
    seen: list[str] = []
    server.read_start(
        lambda stream, data, error: (
            seen.append("read"),
            stream.close(lambda handle: seen.append("closed")),
        )
    )
    client.write(bytes(MUCH))
    loop.run()
    assert seen == ["read", "closed"]


def test_a_handle_closed_by_another_in_the_same_batch_is_not_called(make_loop: MakeLoop, kind: Kind) -> None:
    loop = make_loop()
    pairs = [kind.pair(loop) for _ in range(5)]
    servers = [server for _, server in pairs]
    seen: list[Stream] = []

    def close_the_others(stream: Stream, data: bytes, error: OSError | None) -> None:
        seen.append(stream)
        for server in servers:
            if server is not stream:
                server.close()
        stream.read_stop()

    for client, server in pairs:
        client.try_write(b"x")
        server.read_start(close_the_others)
    loop.run()
    assert len(seen) == 1


def test_a_descriptor_used_again_in_the_same_batch_gets_no_old_data(make_loop: MakeLoop, kind: Kind) -> None:
    loop = make_loop()
    pairs = [kind.pair(loop) for _ in range(2)]
    servers = [server for _, server in pairs]
    reader = Reader()
    fresh: list[Any] = []

    def replace_the_other(stream: Stream, data: bytes, error: OSError | None) -> None:
        stream.read_stop()
        other = servers[1 - servers.index(stream)]
        fd = other.fileno()
        other.close()
        ours, theirs = socket.socketpair()
        fresh.append(theirs)
        assert ours.fileno() == fd
        replacement = Pipe(loop)
        replacement.open(ours.detach())
        replacement.read_start(reader)

    holes = [os.dup(0) for _ in range(64)]  # now the next free number is the one that is closed next
    for client, server in pairs:
        client.try_write(b"old")
        server.read_start(replace_the_other)
    for _ in range(3):
        loop.run(RunMode.NOWAIT)
    assert (reader.data, reader.ends) == (b"", [])
    fresh[0].send(b"new")
    loop.run(RunMode.NOWAIT)
    assert reader.data == b"new"
    fresh[0].close()
    for hole in holes:
        os.close(hole)


def test_a_closed_handle_refuses_everything(loop: Loop, kind: Kind) -> None:
    client, _ = kind.pair(loop)
    client.close()
    for attempt in (
        lambda: client.read_start(Reader()),
        lambda: client.write(b"x"),
        lambda: client.try_write(b"x"),
        lambda: client.shutdown(),
        lambda: client.listen(1, print),
        lambda: client.bind(kind.fresh_address()),
        lambda: client.connect(kind.fresh_address()),
        lambda: client.accept(kind.handle(loop)),
        lambda: client.open(0),
        lambda: client.getsockname(),
        lambda: client.send_buffer_size(),
    ):
        with pytest.raises(OSError, match=r"closed|Bad file descriptor"):
            attempt()
    client.read_stop()
    assert not client.is_readable()
    assert not client.is_writable()


# Errors out of callbacks.


@ERRORS
@IN_BOTH_ORDERS
def test_an_error_out_of_a_read_callback_keeps_the_other_data(
    make_loop: MakeLoop, kind: Kind, run_once: Callable[[Loop], None], error: type[BaseException]
) -> None:
    loop = make_loop()
    pairs = [kind.pair(loop) for _ in range(10)]
    received: list[bytes] = []

    def read(stream: Stream, data: bytes, problem: OSError | None) -> None:
        received.append(data)
        if len(received) == 3:
            raise error("on purpose")

    for number, (client, server) in enumerate(pairs):
        server.read_start(read)
        client.try_write(b"%d" % number)

    def run_a_while() -> None:
        for _ in range(10):
            run_once(loop)

    with pytest.raises(error, match="on purpose"):
        run_a_while()
    assert len(received) == 3
    run_a_while()
    assert sorted(received) == [b"%d" % number for number in range(10)]


@ERRORS
def test_an_error_out_of_a_read_callback_does_not_hold_up_the_writes(
    make_loop: MakeLoop, kind: Kind, error: type[BaseException]
) -> None:
    loop = make_loop()
    client, server = kind.pair(loop)
    failed = False

    def fail_once(stream: Stream, data: bytes, problem: OSError | None) -> None:
        nonlocal failed
        if not failed:
            failed = True
            raise error("on purpose")
        stream.read_stop()

    ended = Ended()
    client.write(bytes(MUCH), ended)
    loop.run(RunMode.NOWAIT)  # the kernel takes no more
    client.read_start(fail_once)
    server.try_write(b"x")
    received = drain(server)  # now it can be read and written at once
    with pytest.raises(error, match="on purpose"):
        loop.run()

    def count(stream: Stream, data: bytes, problem: OSError | None) -> None:
        nonlocal received
        received += len(data)
        if received == MUCH:
            stream.close()
            client.close()

    server.read_start(count)
    loop.run()
    assert received == MUCH
    assert ended.results == [("Write", None)]


@ERRORS
def test_an_error_out_of_a_write_callback_keeps_the_others(
    make_loop: MakeLoop, kind: Kind, error: type[BaseException]
) -> None:
    loop = make_loop()
    client, _ = kind.pair(loop)
    seen: list[int] = []

    def note(number: int) -> None:
        seen.append(number)
        if number == 2:
            raise error("on purpose")

    for number in range(5):
        client.write(b"x", lambda request, problem, number=number: note(number))
    client.shutdown(lambda request, problem: note(5))
    with pytest.raises(error, match="on purpose"):
        loop.run()
    assert seen == [0, 1, 2]
    loop.run()
    assert seen == [0, 1, 2, 3, 4, 5]


@ERRORS
def test_an_error_out_of_a_cancelled_request_keeps_the_rest_of_the_closing(
    make_loop: MakeLoop, kind: Kind, error: type[BaseException]
) -> None:
    loop = make_loop()
    client, other = kind.pair(loop)
    seen: list[str] = []

    def note(name: str) -> None:
        seen.append(name)
        if name == "write 1":
            raise error("on purpose")

    client.write(bytes(MUCH))
    for number in range(3):
        client.write(b"x", lambda request, problem, number=number: note(f"write {number}"))
    client.close(lambda handle: note("closed"))
    other.close(lambda handle: note("other closed"))
    with pytest.raises(error, match="on purpose"):
        loop.run()
    assert loop.alive()
    loop.run()
    assert sorted(seen) == ["closed", "other closed", "write 0", "write 1", "write 2"]
    assert seen.index("closed") > seen.index("write 2")


@ERRORS
def test_an_error_out_of_a_connect_callback_keeps_the_data(
    make_loop: MakeLoop, kind: Kind, error: type[BaseException]
) -> None:
    loop = make_loop()

    def greet(server: Stream, problem: OSError | None) -> None:
        connection = kind.handle(loop)
        server.accept(connection)
        connection.write(b"hello")
        connection.shutdown()
        server.close()

    server = kind.server(loop, greet)
    client = kind.handle(loop)

    def fail(request: Any, problem: OSError | None) -> None:
        raise error("on purpose")

    reader, ended = Reader(), Ended()
    client.connect(server.getsockname(), fail)
    client.read_start(reader)
    client.write(b"x", ended)
    with pytest.raises(error, match="on purpose"):
        loop.run()
    loop.run()
    assert reader.data == b"hello"
    assert ended.results == [("Write", None)]


@ERRORS
def test_an_error_out_of_a_connection_callback_keeps_the_server_listening(
    make_loop: MakeLoop, kind: Kind, error: type[BaseException]
) -> None:
    loop = make_loop()
    accepted: list[Stream] = []

    def accept(server: Stream, problem: OSError | None) -> None:
        accepted.append(kind.handle(loop))
        server.accept(accepted[len(accepted) - 1])
        if len(accepted) == 2:
            raise error("on purpose")
        if len(accepted) == 4:
            server.close()

    server = kind.server(loop, accept)
    for _ in range(4):
        kind.handle(loop).connect(server.getsockname())
    with pytest.raises(error, match="on purpose"):
        loop.run()
    loop.run()
    assert len(accepted) == 4


# Around.


def test_callbacks_run_in_the_context_of_who_asked(loop: Loop, kind: Kind) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    client, server = kind.pair(loop)
    seen: list[tuple[str, str]] = []

    def within(value: str, act: Callable[[], object]) -> None:
        contextvars.copy_context().run(lambda: (variable.set(value), act()))

    def note(what: str) -> Callable[..., None]:
        return lambda *args: seen.append((what, variable.get()))

    within("reader", lambda: server.read_start(note("read")))
    within("writer", lambda: client.write(b"x", note("write")))
    within("shutter", lambda: client.shutdown(note("shutdown")))
    loop.run()
    assert sorted(seen) == [
        ("read", "reader"),
        ("read", "reader"),
        ("shutdown", "shutter"),
        ("write", "writer"),
    ]


def test_buffers_of_the_kernel_can_be_sized(loop: Loop, kind: Kind) -> None:
    client, _ = kind.pair(loop)
    assert client.send_buffer_size(65_536) == client.send_buffer_size() == 131_072  # Linux doubles it
    assert client.receive_buffer_size(65_536) == client.receive_buffer_size() == 131_072


def test_quiet_connections_cost_no_turns(make_loop: MakeLoop, kind: Kind) -> None:
    loop = make_loop()
    pairs = [kind.pair(loop) for _ in range(10)]
    for client, server in pairs:
        client.read_start(Reader())
        server.read_start(Reader())
    loop.run(RunMode.NOWAIT)
    before = loop.metrics()
    Timer(loop).start(lambda timer: loop.stop(), 100_000_000)
    loop.run()
    after = loop.metrics()
    assert after.turns - before.turns <= 2
    assert after.events == before.events


def test_a_writer_whose_peer_does_not_read_costs_no_turns(make_loop: MakeLoop, kind: Kind) -> None:
    loop = make_loop()
    client, _ = kind.pair(loop)
    client.write(bytes(MUCH))
    loop.run(RunMode.NOWAIT)
    before = loop.metrics().turns
    Timer(loop).start(lambda timer: loop.stop(), 100_000_000)
    loop.run()
    assert loop.metrics().turns - before <= 2


def test_io_callbacks_run_between_prepare_and_check(loop: Loop, kind: Kind) -> None:
    client, server = kind.pair(loop)
    seen: list[str] = []
    check = Check(loop)
    check.start(lambda handle: seen.append("check"))
    server.read_start(lambda stream, data, error: (seen.append("read"), stream.read_stop()))
    client.try_write(b"x")
    while "read" not in seen:
        loop.run(RunMode.NOWAIT)
    assert seen[len(seen) - 2 :] == ["read", "check"]
