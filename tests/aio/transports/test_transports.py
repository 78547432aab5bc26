"""Stream transports: data, half closing, the end, and what protocols may do to them."""

from __future__ import annotations

import array
import asyncio
import contextvars
import errno
import gc
import os
import random
import socket
import subprocess
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import whorl
from tests.aio.compare_with_asyncio import error_as_in_asyncio, is_as_in_asyncio
from tests.aio.conftest import Connect
from tests.aio.sockets_for_tests import (
    BufferedRecorder,
    Recorder,
    digest,
    fill,
    noise,
    receive,
    receive_all,
    reset,
    socket_pair,
    turns,
    turns_while_idle,
)
from tests.aio.tls_contexts import client_context, server_context
from whorl.aio.transports.public import SocketTransport
from whorl.core import Kernel
from whorl.core.limits import LONGEST_READ, READ_SIZE

Reported = list[dict[str, Any]]


def strided(data: bytes) -> memoryview:
    """Return a view that gives `data`, but not from contiguous memory."""
    spread = bytearray(2 * len(data))
    spread[::2] = data
    return memoryview(spread)[::2]


class OddBytes(bytes):
    """Bytes that lie about their length."""

    def __len__(self) -> int:
        return 1 << 40


SPELLINGS: dict[str, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": memoryview,
    "memoryview of a bytearray": lambda data: memoryview(bytearray(data)),
    "part of a memoryview": lambda data: memoryview(b"<" + data + b">")[1:-1],
    "signed bytes": lambda data: memoryview(data).cast("b"),
    "characters": lambda data: memoryview(data).cast("c"),
    "integers": lambda data: memoryview(array.array("I", data)),
    "two dimensions": lambda data: memoryview(data).cast("B", (2, len(data) // 2)),
    "not contiguous": strided,
    "a subclass that lies": OddBytes,
}
IN_ALL_SPELLINGS = pytest.mark.parametrize("spelled", SPELLINGS.values(), ids=SPELLINGS)


ALL_CALLS = [
    "connection_made",
    "data_received",
    "pause_writing",
    "resume_writing",
    "eof_received",
    "connection_lost",
]


# Data.


async def test_a_protocol_gets_what_its_peer_sends(connect: Connect, kind: str) -> None:
    protocol = Recorder()
    _, peer = await connect(kind, protocol)
    peer.send(b"one")
    await protocol.until_received(3)
    peer.send(b"two")
    assert await protocol.until_received(6) == b"onetwo"
    assert protocol.calls[0] == "connection_made"


@pytest.mark.exact("looks at once for what was written")
async def test_the_first_write_leaves_at_once(connect: Connect, kind: str) -> None:
    transport, peer = await connect(kind, Recorder())
    transport.write(b"now")
    assert peer.recv(10) == b"now"
    assert transport.get_write_buffer_size() == 0


@IN_ALL_SPELLINGS
async def test_any_kind_of_bytes_can_be_written(
    spelled: Callable[[bytes], Any], connect: Connect, kind: str
) -> None:
    transport, peer = await connect(kind, Recorder())
    transport.write(spelled(b"12345678"))
    transport.writelines([b"<", spelled(b"abcdefgh"), spelled(b"ABCDEFGH"), b">"])
    assert await receive(peer, 26) == b"12345678<abcdefghABCDEFGH>"
    transport.close()
    assert await receive_all(peer) == b""


@pytest.mark.exact("says how much of a write waits")
@IN_ALL_SPELLINGS
async def test_any_kind_of_bytes_can_wait_to_be_sent(
    spelled: Callable[[bytes], Any], connect: Connect, kind: str
) -> None:
    transport, peer = await connect(kind, Recorder(), small=True)
    blocks = [noise(40_000, seed) for seed in range(6)]
    waiting = 0
    for block in blocks[:3]:
        transport.write(spelled(block))
    transport.writelines([spelled(block) for block in blocks[3:]])
    waiting = transport.get_write_buffer_size()
    assert 0 < waiting < 240_000
    received = await receive(peer, 240_000)
    assert digest(received) == digest(b"".join(blocks))
    assert transport.get_write_buffer_size() == 0


@pytest.mark.parametrize("method", ["write", "writelines"])
async def test_write_copies_mutable_data(method: str, connect: Connect, kind: str) -> None:
    transport, peer = await connect(kind, Recorder(), small=True)
    first, second = bytearray(b"a" * 200_000), bytearray(b"b" * 200_000)
    if method == "write":
        transport.write(first)
        transport.write(memoryview(second))
    else:
        transport.writelines([first, memoryview(second)])
    first[:] = second[:] = b"x" * 200_000
    assert await receive(peer, 400_000) == b"a" * 200_000 + b"b" * 200_000


@pytest.mark.parametrize("method", ["write", "writelines"])
@pytest.mark.parametrize("size", [8, 300_000])
async def test_buffers_are_not_held(method: str, size: int, connect: Connect, kind: str) -> None:
    transport, peer = await connect(kind, Recorder(), small=True)
    data = bytearray(size)
    view = memoryview(data)
    if method == "write":
        transport.write(data)
        transport.write(view)
    else:
        transport.writelines([data, view])
    view.release()
    data.clear()  # A buffer that somebody holds cannot be resized.
    assert len(await receive(peer, 2 * size)) == 2 * size


@pytest.mark.parametrize("data", ["text", None, 1, [1], array.array("B", b"x")])
async def test_write_refuses_other_types_than_bytes(data: object, connect: Connect, kind: str) -> None:
    transport, peer = await connect(kind, Recorder())
    kinds = "bytes-like object" if sys.version_info < (3, 14) else "bytes, bytearray, or memoryview object"
    with pytest.raises(TypeError, match=f"must be a {kinds}, not"):
        transport.write(data)
    if not isinstance(data, array.array):
        with pytest.raises(TypeError):
            transport.writelines([b"a", data])
    transport.write(b"b")
    assert await receive(peer, 1) == b"b"


async def test_writing_nothing_sends_nothing(connect: Connect, kind: str) -> None:
    transport, peer = await connect(kind, Recorder())
    transport.write(b"")
    transport.write(bytearray())
    transport.writelines([])
    transport.writelines([b"", memoryview(b"")])
    transport.writelines(iter([b"", b"x", b""]))
    transport.close()
    assert await receive_all(peer) == b"x"


class Backwards(list[bytes]):
    """A list that gives its items from the last to the first."""

    def __iter__(self) -> Iterator[bytes]:
        return reversed(self)


@pytest.mark.exact("counts the calls of the kernel")
@pytest.mark.parametrize(
    "lines",
    [
        lambda: [b"one ", b"", b"two"],
        lambda: (b"one ", b"two"),
        lambda: [b"one two"],
        lambda: Backwards([b"two", b"one "]),
        lambda: iter([b"one ", b"two"]),
        lambda: [b"one ", bytearray(b"two")],
    ],
    ids=["list", "tuple", "one", "subclass", "iterator", "bytearray"],
)
async def test_few_lines_leave_in_one_write(lines: Callable[[], Any], connect: Connect, kind: str) -> None:
    transport, peer = await connect(kind, Recorder())
    calls = transport._write_calls
    transport.writelines(lines())
    assert transport._write_calls == calls + 1
    assert await receive(peer, 7) == b"one two"


@pytest.mark.gil("other threads may change a list of lines")
@pytest.mark.exact("counts the calls of the kernel")
@pytest.mark.parametrize(("size", "calls"), [(100, 1), (1000, 4)])
async def test_short_lines_leave_in_one_write_and_long_ones_as_pieces(
    size: int, calls: int, connect: Connect, kind: str
) -> None:
    transport, peer = await connect(kind, Recorder())
    lines = [noise(size, number) for number in range(100)]
    before = transport._write_calls
    transport.writelines(lines)
    received = await receive(peer, 100 * size)
    assert transport._write_calls <= before + calls
    assert digest(received) == digest(b"".join(lines))


@pytest.mark.parametrize("size", [8, 1000])
async def test_lines_may_change_once_they_are_written(size: int, connect: Connect, kind: str) -> None:
    transport, peer = await connect(kind, Recorder(), small=True)
    blocks = [noise(300_000), noise(size, 1), noise(size, 2), noise(size, 3)]
    transport.write(blocks[0])
    lines = blocks[1:]
    transport.writelines(lines)
    lines[:] = [b"another"] * 1000
    transport.writelines([b"the end"])
    transport.close()
    assert digest(await receive_all(peer)) == digest(b"".join([*blocks, b"the end"]))


async def test_many_chunks_leave_in_order(connect: Connect, kind: str) -> None:
    # More chunks than one gathering write takes, of sizes that cut them anywhere.
    transport, peer = await connect(kind, Recorder(), small=True)
    sizes = random.Random(1)
    blocks = [noise(sizes.randrange(3000), seed) for seed in range(500)]
    transport.writelines(blocks[:200])
    for block in blocks[200:300]:
        transport.write(block)
    transport.writelines(blocks[300:])
    transport.close()
    assert digest(await receive_all(peer)) == digest(b"".join(blocks))


async def test_a_hundred_megabytes_pass_unchanged_in_both_directions(
    loop: whorl.EventLoop, kernel: Any, connect: Connect, kind: str
) -> None:
    class Mirror(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.transport.write(data)

        def pause_writing(self) -> None:
            self.transport.pause_reading()

        def resume_writing(self) -> None:
            self.transport.resume_reading()

        def eof_received(self) -> bool:
            self.transport.write_eof()
            return False

    block = noise(1 << 20)
    count = 100 if kernel is None else 10  # for each of many seeds
    _, peer = await connect(kind, Mirror())

    async def send() -> None:
        for _ in range(count):
            await loop.sock_sendall(peer, block)
        peer.shutdown(socket.SHUT_WR)

    sender = loop.create_task(send())
    buffer = bytearray(1 << 18)
    received = position = 0
    while size := await loop.sock_recv_into(peer, buffer):
        with memoryview(buffer) as view:
            rest = min(size, len(block) - position)
            assert view[:rest] == block[position : position + rest]
            assert view[rest:size] == block[: size - rest]
        received += size
        position = received % len(block)
    await sender
    assert received == count << 20


async def test_tcp_transport_sets_tcp_nodelay(connect: Connect) -> None:
    transport, _ = await connect("tcp", Recorder())
    sock = transport.get_extra_info("socket")
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


async def test_a_connection_over_ipv6(connect: Connect) -> None:
    protocol = Recorder()
    transport, peer = await connect("tcp6", protocol)
    peer.send(b"six")
    assert await protocol.until_received(3) == b"six"
    assert transport.get_extra_info("peername")[0] == "::1"
    assert transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


async def test_urgent_data_hides_nothing_of_what_follows(connect: Connect) -> None:
    """A read ends at it, before all was read that had arrived."""
    protocol = Recorder()
    _, peer = await connect("tcp", protocol)
    peer.send(b"before")
    peer.send(b"!", socket.MSG_OOB)
    peer.send(b"after")
    assert await protocol.until_received(11) == b"beforeafter"
    peer.send(b"more")
    assert await protocol.until_received(15) == b"beforeaftermore"


# Half closing.


def test_an_end_that_is_kept_open_is_told_again_after_a_pause() -> None:
    async def pause_after_the_end(loop: Any) -> int:
        ours, peer = socket_pair("tcp")
        protocol = Recorder(keep_open=True)
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, ours)
        peer.shutdown(socket.SHUT_WR)
        await protocol.until(lambda: "eof_received" in protocol.calls)
        transport.pause_reading()
        transport.resume_reading()
        await turns(5)
        transport.abort()
        await protocol.until_lost()
        peer.close()
        return protocol.calls.count("eof_received")

    assert is_as_in_asyncio(pause_after_the_end) == 2


async def test_write_eof_ends_what_the_peer_reads_and_nothing_else(connect: Connect, kind: str) -> None:
    protocol = Recorder()
    transport, peer = await connect(kind, protocol)
    assert transport.can_write_eof()
    transport.write(b"last")
    transport.write_eof()
    transport.write_eof()
    assert await receive_all(peer) == b"last"
    assert not transport.is_closing()
    peer.send(b"answer")
    assert await protocol.until_received(6) == b"answer"


async def test_write_eof_waits_for_what_is_unsent(connect: Connect, kind: str) -> None:
    transport, peer = await connect(kind, Recorder(), small=True)
    data = noise(300_000)
    transport.write(data)
    transport.write_eof()
    assert transport.get_write_buffer_size() > 0
    assert digest(await receive_all(peer)) == digest(data)


@pytest.mark.parametrize("method", ["write", "writelines"])
async def test_writing_after_write_eof_is_an_error(method: str, connect: Connect, kind: str) -> None:
    transport, peer = await connect(kind, Recorder())
    transport.write_eof()
    with pytest.raises(RuntimeError, match=f"Cannot call {method}\\(\\) after write_eof\\(\\)"):
        getattr(transport, method)([b"x"] if method == "writelines" else b"x")
    assert await receive_all(peer) == b""


def test_write_eof_of_a_connection_that_is_gone_is_the_error_asyncio_gives() -> None:
    async def end_what_has_ended(loop: Any) -> Any:
        ours, peer = socket_pair("tcp")
        protocol = Recorder()
        protocol.eof_received = lambda: True  # type: ignore[method-assign]
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, ours)
        transport.pause_reading()
        peer.close()
        transport.write(b"x")  # answered by a reset
        while not ours.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            await asyncio.sleep(0)
        try:
            transport.write_eof()
        finally:
            transport.abort()
            await protocol.until_lost()

    assert error_as_in_asyncio(end_what_has_ended)[0] is OSError


async def test_write_eof_after_close_is_ignored(connect: Connect, kind: str) -> None:
    protocol = Recorder()
    transport, peer = await connect(kind, protocol)
    transport.close()
    transport.write_eof()
    assert await protocol.until_lost() is None
    assert await receive_all(peer) == b""


@pytest.mark.exact("looks at once for what was written")
async def test_write_eof_when_writing_resumes(connect: Connect, kind: str) -> None:
    class Ender(Recorder):
        def resume_writing(self) -> None:
            self.transport.write_eof()
            super().resume_writing()

    protocol = Ender(keep_open=True)
    transport, peer = await connect(kind, protocol)
    peer.shutdown(socket.SHUT_WR)
    await protocol.until(lambda: "eof_received" in protocol.calls)
    transport.set_write_buffer_limits(high=0)
    written = bytearray()
    while not transport.get_write_buffer_size():
        written += noise(50_000, len(written))
        transport.write(written[-50_000:])
    # All waiting data leaves at once when the socket is empty, and its end with it. The connection is then
    # closed on both sides, and shutting it once more would be an error.
    received = peer.recv(len(written))
    while len(received) + transport.get_write_buffer_size() < len(written):
        received += peer.recv(len(written))
    assert digest(received + await receive_all(peer)) == digest(written)
    await turns(3)
    assert not protocol.is_lost
    transport.close()
    assert await protocol.until_lost() is None


async def test_the_end_of_the_peer_closes_the_transport(connect: Connect, kind: str) -> None:
    protocol = Recorder(keep_open=False)
    transport, peer = await connect(kind, protocol)
    peer.send(b"bye")
    peer.shutdown(socket.SHUT_WR)
    assert await protocol.until_lost() is None
    assert protocol.received == b"bye"
    assert protocol.calls[-2:] == ["eof_received", "connection_lost"]
    assert transport.is_closing()
    assert await receive_all(peer) == b""


async def test_a_protocol_may_go_on_writing_after_the_end_of_its_peer(connect: Connect, kind: str) -> None:
    protocol = Recorder(keep_open=True)
    transport, peer = await connect(kind, protocol)
    peer.shutdown(socket.SHUT_WR)
    await protocol.until(lambda: "eof_received" in protocol.calls)
    await turns(5)
    assert not transport.is_closing()
    assert transport.is_reading()
    assert protocol.calls.count("eof_received") == 1
    transport.pause_reading()
    transport.resume_reading()
    transport.write(b"still here")
    assert await receive(peer, 10) == b"still here"
    transport.close()
    assert await protocol.until_lost() is None


async def test_the_end_of_the_peer_does_not_spin(loop: whorl.EventLoop, connect: Connect, kind: str) -> None:
    protocol = Recorder(keep_open=True)
    _, peer = await connect(kind, protocol)
    peer.shutdown(socket.SHUT_WR)
    await protocol.until(lambda: "eof_received" in protocol.calls)
    assert await turns_while_idle() <= 2


async def test_unsent_data_is_sent_after_the_eof_of_the_peer(connect: Connect, kind: str) -> None:
    protocol = Recorder(keep_open=False)
    transport, peer = await connect(kind, protocol, small=True)
    data = noise(300_000)
    transport.write(data)
    peer.shutdown(socket.SHUT_WR)
    await protocol.until(lambda: "eof_received" in protocol.calls)
    assert transport.is_closing()
    assert digest(await receive_all(peer)) == digest(data)
    assert await protocol.until_lost() is None


# The end.


async def test_close_sends_what_is_unsent(connect: Connect, kind: str) -> None:
    protocol = Recorder()
    transport, peer = await connect(kind, protocol, small=True)
    data = noise(500_000)
    transport.write(data)
    transport.close()
    transport.close()
    assert transport.is_closing()
    assert not protocol.is_lost
    assert digest(await receive_all(peer)) == digest(data)
    assert await protocol.until_lost() is None
    await turns(3)
    assert protocol.is_lost


async def test_data_received_is_not_called_after_close(connect: Connect, kind: str) -> None:
    protocol = Recorder()
    transport, peer = await connect(kind, protocol)
    peer.send(b"too late")
    transport.close()
    assert await protocol.until_lost() is None
    assert not protocol.received


async def test_writes_after_close_still_go_out_while_others_wait(connect: Connect, kind: str) -> None:
    transport, peer = await connect(kind, Recorder(), small=True)
    data = noise(300_000)
    transport.write(data)
    transport.close()
    transport.write(b"and this")
    assert digest(await receive_all(peer)) == digest(data + b"and this")


async def test_connection_lost_never_runs_inside_close(connect: Connect, kind: str) -> None:
    protocol = Recorder()
    transport, _ = await connect(kind, protocol)
    transport.close()
    assert not protocol.is_lost
    await turns(2)
    assert protocol.is_lost


async def test_abort_drops_what_is_unsent(connect: Connect, kind: str) -> None:
    protocol = Recorder()
    transport, peer = await connect(kind, protocol, small=True)
    transport.write(bytes(500_000))
    transport.abort()
    transport.abort()
    transport.close()
    assert transport.get_write_buffer_size() == 0
    assert not protocol.is_lost
    assert await protocol.until_lost() is None
    assert len(await receive_all(peer)) < 500_000


async def test_abort_ends_a_close_that_takes_too_long(connect: Connect, kind: str) -> None:
    protocol = Recorder()
    transport, _ = await connect(kind, protocol, small=True)
    transport.write(bytes(500_000))
    transport.close()
    await turns(5)
    assert not protocol.is_lost
    transport.abort()
    assert await protocol.until_lost() is None


@pytest.mark.parametrize("end", ["close", "abort"])
@pytest.mark.parametrize("call", ["connection_made", "data_received", "eof_received", "connection_lost"])
async def test_a_protocol_may_end_its_transport_in_any_call(
    end: str, call: str, loop: whorl.EventLoop, kind: str
) -> None:
    class Ender(Recorder):
        def note(self, name: str) -> None:
            super().note(name)
            if name == call:
                getattr(self.transport, end)()

    protocol = Ender()
    ours, peer = socket_pair(kind)
    peer.send(b"x")
    peer.shutdown(socket.SHUT_WR)
    await loop.connect_accepted_socket(lambda: protocol, ours)
    assert await protocol.until_lost() is None
    await turns(3)
    assert protocol.is_lost
    assert protocol.transport._sock is None
    peer.close()


@pytest.mark.parametrize("end", ["close", "abort"])
async def test_writing_after_the_end_warns_and_never_raises(
    end: str, connect: Connect, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    protocol = Recorder()
    transport, _ = await connect(kind, protocol)
    getattr(transport, end)()
    for _ in range(4):
        transport.write(b"x")
    assert not caplog.records
    transport.write(b"x")
    transport.writelines([b"x"])
    await protocol.until_lost()
    transport.write(b"x")
    transport.writelines([b"x", bytearray(b"y")])
    warned = [record.getMessage() for record in caplog.records]
    assert warned == ["socket.send() raised exception."] * 4
    assert transport.get_write_buffer_size() == 0


async def test_closed_transport_accepts_every_call(connect: Connect, kind: str) -> None:
    protocol = Recorder()
    transport, _ = await connect(kind, protocol)
    name = transport.get_extra_info("sockname")
    transport.close()
    await protocol.until_lost()
    transport.pause_reading()
    transport.resume_reading()
    transport.write_eof()
    transport.set_write_buffer_limits(high=5)
    transport.close()
    transport.abort()
    assert not transport.is_reading()
    assert transport.get_write_buffer_limits() == (1, 5)
    assert transport.get_extra_info("sockname") == name
    assert "closed" in repr(transport)
    await turns(2)
    assert protocol.is_lost


async def test_a_reset_is_reported_to_a_protocol_that_reads(connect: Connect) -> None:
    protocol = Recorder()
    _, peer = await connect("tcp", protocol)
    reset(peer)
    error = await protocol.until_lost()
    assert isinstance(error, ConnectionResetError)
    assert error.errno == errno.ECONNRESET
    assert "eof_received" not in protocol.calls


async def test_data_that_arrived_before_a_reset_is_delivered(connect: Connect) -> None:
    protocol = Recorder()
    _, peer = await connect("tcp", protocol)
    peer.send(b"before")
    reset(peer)
    assert isinstance(await protocol.until_lost(), ConnectionResetError)
    assert protocol.received in (b"before", b"")  # The kernel may drop it.


async def test_a_peer_that_is_gone_is_a_broken_pipe_to_one_who_writes(connect: Connect, kind: str) -> None:
    protocol = Recorder()
    transport, peer = await connect(kind, protocol)
    transport.pause_reading()
    peer.close()
    while not protocol.is_lost:
        transport.write(b"x")
        await turns(1)
    assert isinstance(protocol.error, BrokenPipeError | ConnectionResetError)
    assert (protocol.error.errno == errno.EPIPE) or kind == "tcp"


async def test_an_error_while_data_waits_is_reported(connect: Connect, kind: str) -> None:
    protocol = Recorder()
    transport, peer = await connect(kind, protocol, small=True)
    transport.pause_reading()
    transport.write(bytes(500_000))
    peer.close()  # With unread data: this resets.
    error = await protocol.until_lost()
    assert isinstance(error, BrokenPipeError | ConnectionResetError)
    assert transport.get_write_buffer_size() == 0


async def test_the_peer_of_an_aborted_connection_learns_of_it(connect: Connect, kind: str) -> None:
    transport, peer = await connect(kind, Recorder())
    transport.abort()
    assert await receive_all(peer) == b""


# Information about a connection.


async def test_extra_information(connect: Connect, kind: str) -> None:
    transport, peer = await connect(kind, Recorder())
    sock = transport.get_extra_info("socket")
    assert isinstance(sock, asyncio.trsock.TransportSocket)
    assert sock.fileno() == transport._sock_fd
    assert sock.type == socket.SOCK_STREAM
    assert transport.get_extra_info("sockname") == peer.getpeername()
    assert transport.get_extra_info("peername") == peer.getsockname()
    assert transport.get_extra_info("sslcontext") is None
    assert transport.get_extra_info("nonsense", "default") == "default"


async def test_a_transport_is_asyncios_and_ours(connect: Connect, kind: str) -> None:
    transport, _ = await connect(kind, Recorder())
    assert isinstance(transport, asyncio.Transport)
    assert isinstance(transport, asyncio.ReadTransport | asyncio.WriteTransport)
    assert isinstance(transport, SocketTransport)
    assert not isinstance(transport, asyncio.DatagramTransport)


async def test_representation(connect: Connect, kind: str) -> None:
    protocol = Recorder()
    transport, peer = await connect(kind, protocol, small=True)
    fd = transport._sock_fd
    assert repr(transport) == f"<_SelectorSocketTransport fd={fd} read=polling write=<idle, bufsize=0>>"
    transport.write(bytes(500_000))
    waiting = transport.get_write_buffer_size()
    assert f"write=<polling, bufsize={waiting}>" in repr(transport)
    transport.pause_reading()
    assert "read=idle" in repr(transport)
    transport.close()
    assert "closing" in repr(transport)
    peer.close()
    await protocol.until_lost()
    await turns(1)
    assert repr(transport) == f"<_SelectorSocketTransport closed fd={fd}>"


async def names_of_transports(loop: Any) -> list[str]:
    ours, peer = socket.socketpair()
    tls_client, tls_server = socket.socketpair()
    reader, writer = os.pipe()
    made = [
        await loop.create_connection(asyncio.Protocol, sock=ours),
        *await asyncio.gather(
            loop.create_connection(
                asyncio.Protocol, sock=tls_client, ssl=client_context(), server_hostname="localhost"
            ),
            loop.connect_accepted_socket(asyncio.Protocol, tls_server, ssl=server_context()),
        ),
        await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)),
        await loop.connect_write_pipe(asyncio.Protocol, open(writer, "wb")),
    ]
    for transport, _ in made:
        transport.abort()
    made.append(await loop.connect_read_pipe(asyncio.Protocol, open(reader, "rb")))
    made.append(
        await loop.subprocess_exec(asyncio.SubprocessProtocol, "true", stdin=None, stdout=None, stderr=None)
    )
    await made[-1][0]._wait()
    for transport, _ in made:
        transport.close()
    peer.close()
    await turns(10)
    return [type(transport).__name__ for transport, _ in made]


def test_classes_of_transports_have_asyncios_names() -> None:
    assert "_SelectorSocketTransport" in is_as_in_asyncio(names_of_transports)


async def test_is_reading(connect: Connect, kind: str) -> None:
    transport, _ = await connect(kind, Recorder())
    assert transport.is_reading()
    transport.pause_reading()
    assert not transport.is_reading()
    transport.resume_reading()
    assert transport.is_reading()
    transport.close()
    assert not transport.is_reading()


def test_a_transport_that_nobody_closed_complains(kind: str) -> None:
    loop = whorl.EventLoop()
    ours, peer = socket_pair(kind)
    loop.run_until_complete(loop.connect_accepted_socket(asyncio.Protocol, ours))
    with pytest.warns(ResourceWarning, match=r"unclosed transport <_SelectorSocketTransport fd=\d+>$"):
        loop.close()  # Nobody else refers to the transport.
    assert peer.recv(1) == b""
    peer.close()


def abandon(kind: str, peers: list[socket.socket]) -> list[weakref.ref[Any]]:
    """Forget a loop that has things to do."""
    loop = whorl.EventLoop()
    ours, peer = socket_pair(kind, small=True)
    transport, protocol = loop.run_until_complete(loop.connect_accepted_socket(Recorder, ours))
    transport.write(bytes(300_000))
    loop.call_later(1000, transport.close)
    loop.call_soon(transport.write, b"never")
    peers.append(peer)
    return [weakref.ref(item) for item in (loop, transport, protocol)]


def test_a_loop_dropped_with_its_transports_is_collected(kind: str) -> None:
    peers: list[socket.socket] = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        references = abandon(kind, peers)
        gc.collect()
    assert {"event", "transport"} <= {str(warning.message).split(" ")[1] for warning in warned}
    warned.clear()  # Warnings refer to what they are about.
    gc.collect()
    assert [reference() for reference in references] == [None] * 3
    peers[0].close()


async def test_a_closed_transport_is_forgotten(loop: whorl.EventLoop, kind: str) -> None:
    ours, peer = socket_pair(kind)
    transport, protocol = await loop.connect_accepted_socket(Recorder, ours)
    transport.write(b"x")
    transport.close()
    await protocol.until_lost()
    await turns(2)
    references = [weakref.ref(transport), weakref.ref(protocol), weakref.ref(ours)]
    del transport, protocol, ours
    gc.collect()
    assert [reference() for reference in references] == [None, None, None]
    peer.close()


# Replacing things.


async def test_methods_can_be_replaced_on_a_transport(connect: Connect, kind: str) -> None:
    transport, peer = await connect(kind, Recorder())
    plain_write, written = transport.write, []

    def counting_write(data: bytes) -> None:
        written.append(len(data))
        plain_write(data)

    transport.write = counting_write
    transport.write(b"12345")
    assert written == [5]
    assert await receive(peer, 5) == b"12345"
    transport.something_else = 1


@pytest.mark.skipif(not whorl.compiled, reason="uncompiled, methods are functions")
def test_socket_transport_defines_its_frequent_methods_itself() -> None:
    # CPython's specialised call of a descriptor asks for an object of exactly the class it belongs to.
    for name in ("write", "writelines", "is_closing", "pause_reading", "resume_reading", "close"):
        assert vars(SocketTransport)[name].__objclass__ is SocketTransport, name


async def test_methods_can_be_replaced_on_a_protocol(connect: Connect, kind: str) -> None:
    protocol, seen = Recorder(), bytearray()
    _, peer = await connect(kind, protocol)
    peer.send(b"a")
    await protocol.until_received(1)

    def other(data: bytes) -> None:
        seen.extend(data)
        protocol.changed()

    protocol.data_received = other  # type: ignore[method-assign]
    peer.send(b"b")
    await protocol.until(lambda: seen)
    assert (protocol.received, seen) == (b"a", b"b")


async def test_protocols_of_both_kinds_can_follow_each_other(connect: Connect, kind: str) -> None:
    first, second, third = Recorder(), BufferedRecorder(size=3), Recorder()
    transport, peer = await connect(kind, first)
    peer.send(b"to the first")
    await first.until_received(12)
    transport.set_protocol(second)
    assert transport.get_protocol() is second
    peer.send(b"to the second")
    await second.until_received(13)
    transport.set_protocol(third)
    peer.send(b"to the third")
    peer.shutdown(socket.SHUT_WR)
    await third.until_lost()
    assert (first.received, second.received) == (b"to the first", b"to the second")
    assert third.received == b"to the third"
    assert set(first.calls) == {"connection_made", "data_received"}
    assert set(second.calls) == {"buffer_updated"}
    assert third.calls[-2:] == ["eof_received", "connection_lost"]


async def test_a_protocol_can_be_replaced_while_it_is_called(connect: Connect, kind: str) -> None:
    class Opening(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if len(self.received) == 4:
                self.transport.set_protocol(rest)

    opening, rest = Opening(), BufferedRecorder(size=4)
    _, peer = await connect(kind, opening)
    peer.send(b"head")
    await opening.until_received(4)
    peer.send(b"and the body")
    assert await rest.until_received(12) == b"and the body"
    assert opening.received == b"head"


# Contexts.

PLACE: contextvars.ContextVar[str] = contextvars.ContextVar("PLACE", default="nowhere")


class Placed(Recorder):
    """Notes what each call sees in its context."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[str, str] = {}

    def note(self, call: str) -> None:
        self.places[call] = PLACE.get()
        super().note(call)


async def test_a_protocol_is_called_in_the_context_of_its_connection(
    loop: whorl.EventLoop, kind: str
) -> None:
    PLACE.set("where it was made")
    ours, peer = socket_pair(kind)
    transport, protocol = await loop.connect_accepted_socket(Placed, ours)
    PLACE.set("somewhere else")
    peer.send(b"x")
    peer.shutdown(socket.SHUT_WR)
    await protocol.until_lost()
    assert protocol.places == dict.fromkeys(
        ["connection_made", "data_received", "eof_received", "connection_lost"], "where it was made"
    )
    peer.close()
    assert transport.is_closing()


async def test_connection_lost_is_called_in_the_context_of_the_connection_whoever_ends_it(
    loop: whorl.EventLoop, kind: str
) -> None:
    PLACE.set("where it was made")
    ours, peer = socket_pair(kind)
    transport, protocol = await loop.connect_accepted_socket(Placed, ours)
    PLACE.set("where it was closed")
    transport.close()
    await protocol.until_lost()
    assert protocol.places["connection_lost"] == "where it was made"
    peer.close()


async def test_pause_writing_is_called_in_the_context_of_the_code_that_writes(
    loop: whorl.EventLoop, kind: str
) -> None:
    PLACE.set("where it was made")
    ours, peer = socket_pair(kind)
    transport, protocol = await loop.connect_accepted_socket(Placed, ours)
    PLACE.set("where it was written")
    transport.write(bytes(20_000_000))
    assert protocol.places["pause_writing"] == "where it was written"
    transport.abort()
    await protocol.until_lost()
    peer.close()


async def test_an_aborted_transport_keeps_its_closed_socket(loop: whorl.EventLoop, kind: str) -> None:
    ours, peer = socket_pair(kind)
    transport, protocol = await loop.connect_accepted_socket(Recorder, ours)
    transport.abort()
    await protocol.until_lost()
    assert transport.get_extra_info("socket").fileno() == -1
    peer.close()


async def test_calls_of_one_connection_share_their_context(loop: whorl.EventLoop, kind: str) -> None:
    class Setter(Placed):
        def data_received(self, data: bytes) -> None:
            PLACE.set(f"{PLACE.get()} {data.decode()}")
            super().data_received(data)

    PLACE.set("from")
    pairs = [socket_pair(kind) for _ in range(2)]
    (_, first), (_, second) = [await loop.connect_accepted_socket(Setter, ours) for ours, _ in pairs]
    for (_, peer), name in zip(pairs, ["1", "2"], strict=True):
        peer.send(name.encode())
        peer.shutdown(socket.SHUT_WR)
    await first.until_lost()
    await second.until_lost()
    assert first.places["eof_received"] == "from 1"
    assert second.places["eof_received"] == "from 2"
    assert PLACE.get() == "from"
    for _, peer in pairs:
        peer.close()


# Errors out of protocols.


class Failing(Recorder):
    """Raises an error in one of its calls."""

    def __init__(self, call: str) -> None:
        super().__init__()
        self.failing_call = call

    def note(self, call: str) -> None:
        super().note(call)
        if call == self.failing_call:
            raise ZeroDivisionError(call)


@pytest.mark.parametrize("call", ["data_received", "eof_received"])
async def test_an_error_of_a_reading_call_ends_the_connection(
    call: str, connect: Connect, kind: str, reported: Reported
) -> None:
    protocol = Failing(call)
    transport, peer = await connect(kind, protocol, small=True)
    transport.write(bytes(300_000))
    peer.send(b"x")
    peer.shutdown(socket.SHUT_WR)
    error = await protocol.until_lost()
    assert isinstance(error, ZeroDivisionError)
    report = reported.pop()
    assert report["exception"] is error
    assert report["message"] == f"Fatal error: protocol.{call}() call failed."
    assert report["transport"] is transport
    assert report["protocol"] is protocol


@pytest.mark.parametrize("call", ["connection_made", "connection_lost"])
async def test_an_error_of_the_first_or_the_last_call_is_only_reported(
    call: str, connect: Connect, kind: str, reported: Reported
) -> None:
    protocol = Failing(call)
    transport, peer = await connect(kind, protocol)
    peer.send(b"x")
    assert await protocol.until_received(1) == b"x"
    transport.close()
    assert await protocol.until_lost() is None
    await turns(2)
    assert isinstance(reported.pop()["exception"], ZeroDivisionError)
    assert await receive_all(peer) == b""
    assert transport._sock is None


@pytest.mark.parametrize("call", ["pause_writing", "resume_writing"])
async def test_an_error_of_flow_control_is_only_reported(
    call: str, connect: Connect, kind: str, reported: Reported
) -> None:
    protocol = Failing(call)
    transport, peer = await connect(kind, protocol, small=True)
    data = noise(500_000)
    transport.write(data)
    assert digest(await receive(peer, 500_000)) == digest(data)
    await protocol.until(lambda: "resume_writing" in protocol.calls)
    assert protocol.calls == ["connection_made", "pause_writing", "resume_writing"]
    report = reported.pop()
    assert report["message"] == f"protocol.{call}() failed"
    assert report["transport"] is transport
    assert not transport.is_closing()


async def test_an_error_after_an_abort_is_reported_too(
    connect: Connect, kind: str, reported: Reported
) -> None:
    class Aborting(Recorder):
        def data_received(self, data: bytes) -> None:
            self.transport.abort()
            raise ZeroDivisionError

    protocol = Aborting()
    _, peer = await connect(kind, protocol)
    peer.send(b"x")
    assert await protocol.until_lost() is None
    assert isinstance(reported.pop()["exception"], ZeroDivisionError)


async def test_operating_errors_are_not_reported_but_in_debug_mode_logged(
    loop: whorl.EventLoop, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    loop.set_debug(True)
    loop.slow_callback_duration = 60
    protocol = Recorder()
    _, peer = await connect("tcp", protocol)
    with caplog.at_level("DEBUG", logger="asyncio"):
        reset(peer)
        await protocol.until_lost()
    assert any("Fatal read error on socket transport" in record.getMessage() for record in caplog.records)


class Interrupt(Recorder):
    """A protocol that Ctrl-C interrupts in its first reading call, after it got the data."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupts = 1

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.interrupts:
            self.interrupts -= 1
            raise KeyboardInterrupt


@pytest.mark.exact("all data in the same turn")
@pytest.mark.parametrize("position", [0, 2, 9])
def test_an_interrupt_out_of_one_connection_costs_the_others_nothing(
    position: int, loop: whorl.EventLoop, kind: str
) -> None:
    pairs = [socket_pair(kind) for _ in range(10)]
    protocols: list[Recorder] = [Interrupt() if index == position else Recorder() for index in range(10)]

    async def connect_all() -> list[Any]:
        return [
            (await loop.connect_accepted_socket(lambda p=protocol: p, ours))[0]
            for (ours, _), protocol in zip(pairs, protocols, strict=True)
        ]

    transports = loop.run_until_complete(connect_all())
    for index, (_, peer) in enumerate(pairs):
        peer.send(b"data %d" % index)
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(protocols[-1].until(lambda: len(protocols[-1].calls) > 5))
    got = [bytes(protocol.received) for protocol in protocols]
    assert got.count(b"") == 9 - position, "the interrupt did not leave at once"
    for protocol in protocols:
        loop.run_until_complete(protocol.until_received(6))
    assert [bytes(protocol.received) for protocol in protocols] == [b"data %d" % n for n in range(10)]
    for transport, (_, peer) in zip(transports, pairs, strict=True):
        transport.abort()
        peer.close()
    loop.run_until_complete(turns(2))


@pytest.mark.exact("which of two errors comes first, of reading and of writing")
def test_ready_write_precedes_a_read_that_an_exit_cut_short(kind: str) -> None:
    class Exit(Recorder, asyncio.BufferedProtocol):
        exits = True

        def get_buffer(self, sizehint: int) -> bytearray:
            if self.exits:
                self.exits = False
                raise SystemExit
            return bytearray(10)

        def buffer_updated(self, nbytes: int) -> None:
            self.calls.append("buffer_updated")

    def both_ready(loop: Any) -> Any:
        ours, peer = socket_pair(kind)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        protocol = Exit()
        transport, _ = loop.run_until_complete(loop.connect_accepted_socket(lambda: protocol, ours))
        transport.write(bytes(10_000_000))
        peer.close()
        with pytest.raises(SystemExit):
            loop.run_until_complete(protocol.until_lost())
        return type(loop.run_until_complete(protocol.until_lost())), protocol.calls

    is_as_in_asyncio(both_ready)


def test_an_interrupt_costs_its_own_connection_nothing(loop: whorl.EventLoop, kind: str) -> None:
    # There is more to read than one read takes, and something waits to be sent: no new event of the
    # kernel's will announce either.
    ours, peer = socket_pair(kind)
    protocol = Interrupt()
    transport, _ = loop.run_until_complete(loop.connect_accepted_socket(lambda: protocol, ours))
    transport.pause_reading()
    data = noise(1_000_000)
    filled = fill(peer, data)
    reply = noise(8_000_000, 1)
    transport.write(reply)
    peer.shutdown(socket.SHUT_WR)
    received = bytearray()
    while len(received) + transport.get_write_buffer_size() < len(reply):
        received += peer.recv(65536)
    transport.resume_reading()
    del transport
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(protocol.until(lambda: len(protocol.calls) > 1000))

    async def rest() -> None:
        received.extend(await receive_all(peer))
        await protocol.until_lost()

    loop.run_until_complete(rest())
    assert digest(protocol.received) == digest(data[:filled])
    assert digest(received) == digest(reply)
    peer.close()


@pytest.mark.parametrize("call", ALL_CALLS)
def test_an_interrupt_out_of_any_call_leaves_the_transport_in_order(
    call: str, loop: whorl.EventLoop, kind: str
) -> None:
    class Interrupted(Recorder):
        def note(self, name: str) -> None:
            super().note(name)
            if name == call:
                raise KeyboardInterrupt

    ours, peer = socket_pair(kind, small=True)
    protocol = Interrupted()
    received: list[bytes] = []

    def write() -> None:
        peer.send(b"x")
        peer.shutdown(socket.SHUT_WR)
        protocol.transport.set_write_buffer_limits(high=0)
        protocol.transport.write(noise(300_000))

    def read() -> None:
        received.append(peer.recv(65536))
        if not received[-1]:
            loop.remove_reader(peer)

    connecting = loop.create_task(loop.connect_accepted_socket(lambda: protocol, ours))
    connecting.add_done_callback(lambda _: loop.call_soon(write))
    loop.add_reader(peer, read)
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(protocol.until(lambda: False))
    loop.run_until_complete(protocol.until_lost())
    loop.run_until_complete(turns(2))
    assert protocol.transport._sock is None
    assert protocol.error is None
    assert digest(b"".join(received)) == digest(noise(300_000))
    assert protocol.calls[0] == "connection_made"
    peer.close()


# Descriptors that are closed underneath.


@pytest.mark.exact("counts turns")
async def test_a_descriptor_closed_underneath_while_a_duplicate_lives_does_not_spin(
    loop: whorl.EventLoop, connect: Connect, kind: str
) -> None:
    protocol, other = Recorder(), Recorder()
    transport, peer = await connect(kind, protocol)
    _, other_peer = await connect(kind, other)
    duplicate = os.dup(transport._sock_fd)
    os.close(transport._sock_fd)
    peer.send(b"nobody reads this")
    assert await turns_while_idle() <= 2
    transport.abort()  # Closes the number once more, which must not be the loop's by now.
    await protocol.until_lost()
    other_peer.send(b"hello")
    assert await other.until_received(5) == b"hello"
    os.close(duplicate)


async def test_the_other_connections_survive_a_descriptor_closed_underneath(
    connect: Connect, kind: str
) -> None:
    protocols = [Recorder() for _ in range(5)]
    connections = [await connect(kind, protocol) for protocol in protocols]
    victim = connections[2].transport
    duplicate = os.dup(victim._sock_fd)
    os.close(victim._sock_fd)
    for round_ in range(3):
        for index, (_, peer) in enumerate(connections):
            if index != 2 or round_ == 0:
                peer.send(b"%d%d" % (round_, index))
        for index, protocol in enumerate(protocols):
            if index != 2:
                await protocol.until_received(2 * round_ + 2)
    assert [bytes(p.received) for p in protocols if p is not protocols[2]] == [
        b"0%d1%d2%d" % (n, n, n) for n in (0, 1, 3, 4)
    ]
    os.close(duplicate)


# Many at once.


async def test_no_byte_ever_reaches_another_connection(
    loop: whorl.EventLoop, connect: Connect, kind: str
) -> None:
    class Echo(asyncio.Protocol):
        """A protocol that keeps its data for some turns before it sends it back, as it came."""

        def connection_made(self, transport: Any) -> None:
            self.transport = transport
            self.kept: list[bytes] = []

        def data_received(self, data: bytes) -> None:
            self.kept.append(data)
            if len(self.kept) > 3:
                self.send_back()

        def send_back(self) -> None:
            kept, self.kept = self.kept, []
            self.transport.writelines(kept)

        def eof_received(self) -> bool:
            self.send_back()
            return False

    sizes = random.Random(5)
    everything = [noise(sizes.choice([1, 100, 5000, 60_000, 300_000]), seed) for seed in range(40)]

    async def converse(peer: socket.socket, data: bytes) -> None:
        pace = random.Random(len(data))

        async def send() -> None:
            sent = 0
            while sent < len(data):
                size = pace.choice([1, 50, 4000, 50_000])
                await loop.sock_sendall(peer, data[sent : sent + size])
                sent += size
                if sent % 7 == 0:
                    await asyncio.sleep(0)
            peer.shutdown(socket.SHUT_WR)

        _, received = await asyncio.gather(send(), receive_all(peer))
        assert digest(received) == digest(data)

    connections = [await connect(kind, Echo()) for _ in everything]
    await asyncio.gather(
        *(converse(peer, data) for (_, peer), data in zip(connections, everything, strict=True))
    )


# Misuse.


def test_a_transport_on_a_closed_loop(kind: str) -> None:
    loop = whorl.EventLoop()
    loop.close()
    ours, peer = socket_pair(kind)
    with pytest.raises(RuntimeError, match="closed"):
        SocketTransport(loop, ours, asyncio.Protocol())
    gc.collect()
    ours.close()
    peer.close()


async def test_a_socket_serves_one_transport_only(loop: whorl.EventLoop, connect: Connect, kind: str) -> None:
    transport, peer = await connect(kind, Recorder())
    transport.pause_reading()
    same = transport.get_extra_info("socket")
    with pytest.raises(RuntimeError, match="is used by transport"):
        loop.add_reader(same, print)
    with pytest.raises(RuntimeError, match="is used by transport"):
        loop.remove_writer(transport._sock_fd)
    with pytest.raises(RuntimeError, match="is used by transport"):
        await loop.sock_recv(transport._sock, 1)
    transport.write(b"fine")
    assert await receive(peer, 4) == b"fine"


def test_transports_left_at_the_end_of_the_program_harm_nobody() -> None:
    program = """
import asyncio, socket, whorl
async def main():
    ours, peer = socket.socketpair()
    transport, _ = await asyncio.get_running_loop().connect_accepted_socket(asyncio.Protocol, ours)
    transport.write(bytes(10_000_000))
    return transport, peer
loop = whorl.new_event_loop()
kept = loop.run_until_complete(main())
print("done")
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (answer.returncode, answer.stdout) == (0, "done\n"), answer.stderr


@pytest.mark.parametrize("left", [0, 1, 5])
def test_a_buffer_that_shrinks_while_it_is_sent_confuses_nothing(left: int) -> None:
    # A large send lets other threads run, and one of them may change the buffer.
    class Shrinking(Kernel):
        def send(self, fd: int, data: Any, offset: int) -> int:
            if not isinstance(data, bytearray):
                return super().send(fd, data, offset)
            sent = super().send(fd, bytes(data[:4]), 0)
            del data[left:]
            return sent

    async def main(loop: whorl.EventLoop) -> bytes:
        ours, peer = socket_pair("tcp")
        protocol = Recorder()
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, ours)
        transport.write(bytearray(b"0123456789"))
        transport.write(b"end")
        transport.close()
        received = await receive_all(peer)
        assert transport.get_write_buffer_size() == 0
        await protocol.until_lost()
        peer.close()
        return received

    loop = whorl.EventLoop(kernel=Shrinking())
    assert loop.run_until_complete(main(loop)) == b"0123" + b"01234"[4:left] + b"end"
    loop.close()


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (
            (100, 20_000, 20_000, 16_385, 16_383, 100, 100),
            [READ_SIZE, READ_SIZE, 32_768, 32_768, 32_768, 16_384, READ_SIZE],
        ),
        # One that took two reads: the next of its length takes one.
        (
            (40_000, 100_000, 100_000, 10_000, 10_000),
            [READ_SIZE, 65_536, 131_072, 131_072, 131_072, 16_384],
        ),
        ((40_000, 65_536, 65_536, 1), [READ_SIZE, 65_536, 131_072, 131_072]),
        ((131_000, 150_000, 1, 1), [READ_SIZE, 131_072, 131_072, 131_072, READ_SIZE]),
    ],
)
def test_a_read_asks_for_a_little_more_than_came_the_last_time_if_that_was_much(
    sizes: tuple[int, ...], expected: list[int]
) -> None:
    watermarks = []

    class Asked(Kernel):
        def recv(self, fd: int, limit: int) -> bytes | int:
            watermarks.append(limit)
            return super().recv(fd, limit)

    async def main(loop: whorl.EventLoop) -> None:
        ours, peer = socket_pair("unix")
        protocol = Recorder()
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, ours)
        everything = b""
        for number, size in enumerate(sizes):
            peer.send(bytes([number]) * size)
            everything += bytes([number]) * size
            assert await protocol.until_received(len(everything)) == everything
        transport.close()
        await protocol.until_lost()
        peer.close()

    loop = whorl.EventLoop(kernel=Asked())
    loop.run_until_complete(main(loop))
    loop.close()
    assert watermarks == expected


@pytest.mark.parametrize("size", [LONGEST_READ - 1, LONGEST_READ, LONGEST_READ + 1, 3 * LONGEST_READ])
async def test_messages_of_any_length_arrive_again_and_again(
    loop: whorl.EventLoop, connect: Connect, kind: str, size: int
) -> None:
    protocol = Recorder()
    transport, peer = await connect(kind, protocol)
    for number in range(4):
        message = noise(size - number % 2, number)
        before = len(protocol.received)
        await loop.sock_sendall(peer, message)
        received = await protocol.until_received(before + len(message))
        assert digest(received[before:]) == digest(message)
    transport.close()
    await protocol.until_lost()


@pytest.mark.parametrize("first", ["close", "__del__"])
async def test_a_transport_collected_together_with_what_closes_it_is_lost_properly(
    first: str, connect: Connect
) -> None:
    # Of objects that are collected together, the finalizers run in any order: that of a task closes
    # the transport before or after the transport's own.
    protocol = Recorder()
    transport, _ = await connect("unix", protocol)
    if first == "close":
        transport.close()
    with pytest.warns(ResourceWarning, match="unclosed transport"):
        transport.__del__()
    transport.close()
    await turns(3)
    assert protocol.calls == ["connection_made", "connection_lost"]
    assert transport.get_protocol() is None


# Sockets with methods of their own, and methods of asyncio's that tests replace.


class CountingSocket(socket.socket):
    """A socket that counts the bytes of its methods, and takes little at once."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.received = self.sent = 0

    def recv(self, size: int, *flags: int) -> bytes:
        data = super().recv(min(size, 1000), *flags)
        self.received += len(data)
        return data

    def recv_into(self, buffer: Any, *options: int) -> int:
        size = super().recv_into(memoryview(buffer)[:1000], *options)
        self.received += size
        return size

    def send(self, data: Any, *flags: int) -> int:
        size = super().send(memoryview(data)[:1000], *flags)
        self.sent += size
        return size

    def sendmsg(self, buffers: Any, *options: Any) -> int:
        return self.send(b"".join(buffers))


def counting_pair(kind: str) -> tuple[CountingSocket, CountingSocket]:
    """Return two connected sockets of the counting kind."""
    ours, theirs = socket_pair(kind)
    return CountingSocket(fileno=ours.detach()), CountingSocket(fileno=theirs.detach())


@pytest.mark.exact("the methods of the socket are called, not the kernel")
@pytest.mark.parametrize("kind", ["tcp", "unix"])
@pytest.mark.parametrize("recorder", [Recorder, BufferedRecorder])
async def test_the_methods_of_a_socket_class_see_all_data(
    loop: whorl.EventLoop, kind: str, recorder: type[Any]
) -> None:
    ours, theirs = counting_pair(kind)
    transport, _ = await loop.create_connection(Recorder, sock=ours)
    peer, protocol = await loop.create_connection(recorder, sock=theirs)
    data = noise(50_000)
    transport.write(data[:20_000])
    transport.writelines([data[20_000:20_001], data[20_001:]])
    transport.close()
    await protocol.until_lost()
    assert digest(protocol.received) == digest(data)
    assert (ours.sent, theirs.received) == (len(data), len(data))
    peer.close()


@pytest.mark.exact("the methods of the socket are called, not the kernel")
@pytest.mark.parametrize(
    "error", [ConnectionResetError(errno.ECONNRESET, "no"), ZeroDivisionError(), OSError("no number")]
)
async def test_an_error_of_a_sockets_own_method_ends_the_connection(
    loop: whorl.EventLoop, error: Exception
) -> None:
    class Broken(socket.socket):
        def recv(self, *args: int) -> bytes:
            raise error

    ours, theirs = socket.socketpair()
    loop.set_exception_handler(lambda loop, context: None)
    _, protocol = await loop.create_connection(Recorder, sock=Broken(fileno=ours.detach()))
    theirs.send(b"x")
    assert isinstance(await protocol.until_lost(), type(error))
    theirs.close()


def test_a_method_replaced_in_asyncios_class_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(loop: Any) -> Any:
        ours, theirs = socket.socketpair()
        transport, _ = await loop.create_connection(Recorder, sock=ours)
        monkeypatch.setattr(asyncio.BaseTransport, "get_extra_info", lambda *args: args)
        answer = transport.get_extra_info("sockname")
        monkeypatch.undo()
        transport.close()
        theirs.close()
        await turns(2)
        return answer == (transport, "sockname"), transport.get_extra_info("nothing", 5)

    assert is_as_in_asyncio(ask) == (True, 5)
