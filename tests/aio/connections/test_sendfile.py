"""Files sent over sockets and transports."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import pytest

import whorl
from tests.aio.compare_with_asyncio import is_as_in_asyncio
from tests.aio.conftest import Connect
from tests.aio.sockets_for_tests import Recorder, digest, noise, receive, receive_all, socket_pair, turns
from tests.aio.tls_contexts import client_context, server_context
from whorl.core import Kernel
from whorl.core.limits import SENDFILE_READ_SIZE, SENDFILE_WRITE_SIZE

pytestmark = pytest.mark.usefixtures("no_leak")

Pair = tuple[socket.socket, socket.socket]
DATA = noise(3 * SENDFILE_READ_SIZE + 7)

#: Whorl sets it on every Python.
sets_position_first = pytest.mark.skipif(
    sys.version_info < (3, 14), reason="asyncio sets no position if nothing was sent"
)


class NoSendfile(Kernel):
    """A kernel without sendfile."""

    def sendfile(self, target: int, source: int, offset: int, count: int) -> int:
        return -errno.ENOSYS


class HaltingKernel(Kernel):
    """A kernel that sends a little of a file at a time, and gives each odd call up."""

    def __init__(self, refusal: int = errno.EAGAIN) -> None:
        super().__init__()
        self.calls: list[tuple[int, int]] = []
        self.refusal = refusal

    def sendfile(self, target: int, source: int, offset: int, count: int) -> int:
        self.calls.append((offset, count))
        if len(self.calls) % 2:
            return -self.refusal
        return super().sendfile(target, source, offset, min(count, 1000))


@pytest.fixture(params=["by the kernel", "piece by piece", "from memory"])
def way(request: pytest.FixtureRequest) -> str:
    """Return the way in which a file is sent."""
    return str(request.param)


@pytest.fixture
def kernel(request: pytest.FixtureRequest, kernel: Any) -> Any:
    if "way" in request.fixturenames and request.getfixturevalue("way") == "piece by piece":
        return NoSendfile()
    return kernel


@pytest.fixture
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BinaryIO]:
    """Yield a file with some data."""
    if "way" in request.fixturenames and request.getfixturevalue("way") == "from memory":
        yield io.BytesIO(DATA)
        return
    (tmp_path / "data").write_bytes(DATA)
    with (tmp_path / "data").open("rb") as opened:
        yield opened


@pytest.fixture
def pair(kind: str) -> Iterator[Pair]:
    """Yield two connected sockets that take only little at a time."""
    pair = socket_pair(kind, small=True)
    yield pair
    for sock in pair:
        sock.close()


PARTS = [(0, None), (0, 1), (0, len(DATA)), (5, None), (70_000, 100), (7, len(DATA)), (len(DATA), None)]


# Over sockets.


@pytest.mark.parametrize(("offset", "count"), PARTS)
async def test_a_part_of_a_file_goes_over_a_socket(
    loop: whorl.EventLoop, pair: Pair, file: BinaryIO, way: str, offset: int, count: int | None
) -> None:
    expected = DATA[offset:] if count is None else DATA[offset : offset + count]
    sending = loop.create_task(loop.sock_sendfile(pair[0], file, offset, count))
    assert digest(await receive(pair[1], len(expected))) == digest(expected)
    assert await sending == len(expected)
    assert file.tell() == offset + len(expected)
    assert loop.remove_writer(pair[0]) is False


async def test_sock_sendfile_stays_in_order_with_sock_sendall(
    loop: whorl.EventLoop, pair: Pair, file: BinaryIO, way: str
) -> None:
    async def send() -> None:
        await loop.sock_sendall(pair[0], b"before" * 10_000)
        await loop.sock_sendfile(pair[0], file)
        await loop.sock_sendall(pair[0], b"after")
        pair[0].shutdown(socket.SHUT_WR)

    sending = loop.create_task(send())
    assert digest(await receive_all(pair[1])) == digest(b"before" * 10_000 + DATA + b"after")
    await sending


async def test_an_empty_file_sends_nothing(loop: whorl.EventLoop, pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with (tmp_path / "empty").open("rb") as empty:
        assert await loop.sock_sendfile(pair[0], empty) == 0
        assert await loop.sock_sendfile(pair[0], empty, 5, 10) == 0


async def test_a_file_from_memory_needs_the_fallback(loop: whorl.EventLoop, pair: Pair) -> None:
    with pytest.raises(asyncio.SendfileNotAvailableError, match="not a regular file"):
        await loop.sock_sendfile(pair[0], io.BytesIO(DATA), fallback=False)


@pytest.mark.parametrize("refusal", [errno.EAGAIN, errno.EINTR])
def test_short_and_refused_calls_go_on_where_they_were(
    pair: Pair, file: BinaryIO, refusal: int, no_leak: None
) -> None:
    kernel = HaltingKernel(refusal)
    loop = whorl.EventLoop(kernel=kernel)

    async def send() -> int:
        sending = loop.create_task(loop.sock_sendfile(pair[0], file, 10, 5000))
        assert await receive(pair[1], 5000) == DATA[10:5010]
        return await sending

    assert loop.run_until_complete(send()) == 5000
    loop.close()
    assert kernel.calls == [(10 + 1000 * (i // 2), 5000 - 1000 * (i // 2)) for i in range(10)]


@pytest.mark.parametrize("size", [3 << 30, (3 << 30) + 1])
def test_three_gigabytes_are_counted(pair: Pair, tmp_path: Path, size: int, no_leak: None) -> None:
    asked: list[tuple[int, int]] = []

    class EagerKernel(Kernel):
        def sendfile(self, target: int, source: int, offset: int, count: int) -> int:
            asked.append((offset, count))
            return min(count, size - offset)

    loop = whorl.EventLoop(kernel=EagerKernel())
    with (tmp_path / "sparse").open("wb+") as sparse:
        sparse.truncate(size)
        assert loop.run_until_complete(loop.sock_sendfile(pair[0], sparse)) == size
        assert sparse.tell() == size
    loop.close()
    assert max(count for _, count in asked) <= 1 << 30
    assert asked[-1] == (size, 1 << 30)


async def test_the_kernel_sends_from_behind_three_gigabytes(
    loop: whorl.EventLoop, pair: Pair, tmp_path: Path
) -> None:
    with (tmp_path / "sparse").open("wb+") as sparse:
        sparse.seek(3 << 30)
        sparse.write(b"the end")
        sparse.flush()
        assert await loop.sock_sendfile(pair[0], sparse, 3 << 30, fallback=False) == 7
        assert sparse.tell() == (3 << 30) + 7
    assert await receive(pair[1], 7) == b"the end"


async def test_a_count_beyond_all_numbers_sends_all(
    loop: whorl.EventLoop, pair: Pair, file: BinaryIO, way: str
) -> None:
    sending = loop.create_task(loop.sock_sendfile(pair[0], file, 0, 1 << 80))
    assert digest(await receive(pair[1], len(DATA))) == digest(DATA)
    assert await sending == len(DATA)


@pytest.mark.parametrize("offset", [0, 3, 20])
async def test_the_file_is_left_at_the_offset_if_nothing_is_sent(
    loop: whorl.EventLoop, tmp_path: Path, offset: int
) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    ours, peer = socket_pair("unix")
    with ours, peer, (tmp_path / "file").open("rb", buffering=0) as opened:
        opened.read(5)
        if offset == 20:
            assert await loop.sock_sendfile(ours, opened, offset) == 0
        else:
            peer.close()
            with pytest.raises(asyncio.SendfileNotAvailableError):
                await loop.sock_sendfile(ours, opened, offset, fallback=False)
        assert opened.tell() == offset


async def test_a_cancelled_sendfile_leaves_no_writer_and_the_file_behind_what_was_sent(
    loop: whorl.EventLoop, pair: Pair, file: BinaryIO, way: str
) -> None:
    sending = loop.create_task(loop.sock_sendfile(pair[0], file))
    first = await receive(pair[1], 1)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert loop.remove_writer(pair[0]) is False
    sent = file.tell()
    assert 0 < sent < len(DATA)
    assert first + await receive(pair[1], sent - 1) == DATA[:sent]
    with pytest.raises(BlockingIOError):
        pair[1].recv(1)


async def test_a_peer_that_goes_in_the_middle_is_an_error(
    loop: whorl.EventLoop, pair: Pair, file: BinaryIO, way: str
) -> None:
    sending = loop.create_task(loop.sock_sendfile(pair[0], file))
    await receive(pair[1], 1000)
    pair[1].close()
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        await sending
    assert 0 < file.tell() < len(DATA)


@pytest.mark.parametrize("arguments", [(), pytest.param((0, 5), marks=sets_position_first), (1, 5)])
def test_a_pipe_is_sent_as_far_as_in_asyncio(arguments: tuple[int, ...]) -> None:
    async def use(loop: Any) -> Any:
        read_end, write_end = os.pipe()
        os.write(write_end, b"through a pipe")
        ours, peer = socket_pair("unix")
        with ours, peer, open(read_end, "rb", buffering=0) as pipe, open(write_end, "wb"):
            sent = await outcome(loop.sock_sendfile(ours, pipe, *arguments))
            with contextlib.suppress(BlockingIOError):
                return sent, peer.recv(100)
            return sent

    is_as_in_asyncio(use)


# Refusals.


class Text(io.StringIO):
    mode = "r"


REFUSED: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "text": ((Text("text"),), {}),
    "an offset that is no number": ((io.BytesIO(DATA), "1"), {}),
    "a negative offset": ((io.BytesIO(DATA), -1), {}),
    "an offset that is a fraction": ((io.BytesIO(DATA), 1.0), {}),
    "a count that is no number": ((io.BytesIO(DATA), 0, "1"), {}),
    "a count that is a fraction": ((io.BytesIO(DATA), 0, 0.5), {}),
    "a count of nothing": ((io.BytesIO(DATA), 0, 0), {}),
    "a negative count": ((io.BytesIO(DATA), 0, -1), {}),
    "no file": ((5,), {}),
    "no file, and no fallback": ((5,), {"fallback": False}),
    "memory, without fallback": ((io.BytesIO(DATA),), {"fallback": False}),
    "an offset beyond all numbers": ((open, 1 << 80), {"fallback": False}),
    "a file that is closed": ((lambda: closed_file(),), {}),
}


LAST = "an offset at the end of all numbers"


def closed_file() -> BinaryIO:
    with open(__file__, "rb") as opened:
        return opened


@pytest.mark.parametrize("name", [*REFUSED, pytest.param(LAST, marks=sets_position_first)])
@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("method", ["sendfile", "sock_sendfile"])
def test_refused_with_the_error_asyncio_gives(name: str, method: str, debug: bool) -> None:
    async def use(loop: Any) -> Any:
        loop.set_debug(debug)
        arguments, options = REFUSED.get(name, ((open, (1 << 63) - 1), {"fallback": False}))
        ours, peer = socket_pair("unix")
        with peer, open(__file__, "rb") as opened:
            if arguments[0] is open:
                arguments = (opened, *arguments[1:])
            elif callable(arguments[0]):
                arguments = (arguments[0](), *arguments[1:])
            if method == "sock_sendfile":
                with ours:
                    return await outcome(loop.sock_sendfile(ours, *arguments, **options))
            transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, ours)
            result = await outcome(loop.sendfile(transport, *arguments, **options))
            assert transport.is_reading()
            transport.write(b"still works")
            transport.abort()
            await asyncio.sleep(0)
            return result

    is_as_in_asyncio(use)


async def outcome(doing: Any) -> Any:
    try:
        return await doing
    except Exception as error:
        return type(error), str(error)


def test_sockets_that_are_no_streams_or_block_are_refused() -> None:
    async def use(loop: Any) -> Any:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams, socket.socket() as blocking:
            datagrams.setblocking(False)
            wrong_kind = await outcome(loop.sock_sendfile(datagrams, io.BytesIO()))
            loop.set_debug(True)
            return wrong_kind, await outcome(loop.sock_sendfile(blocking, io.BytesIO()))

    assert is_as_in_asyncio(use) == (
        (ValueError, "only SOCK_STREAM type sockets are supported"),
        (ValueError, "the socket must be non-blocking"),
    )


# Over transports.


@pytest.mark.parametrize(("offset", "count"), PARTS)
async def test_a_part_of_a_file_goes_over_a_transport(
    loop: whorl.EventLoop,
    connect: Connect,
    kind: str,
    file: BinaryIO,
    way: str,
    offset: int,
    count: int | None,
) -> None:
    expected = DATA[offset:] if count is None else DATA[offset : offset + count]
    transport, peer = await connect(kind, Recorder(), small=True)
    transport.write(b"before" * 10_000)
    sending = loop.create_task(loop.sendfile(transport, file, offset, count))
    whole = b"before" * 10_000 + expected
    assert digest(await receive(peer, len(whole))) == digest(whole)
    assert await sending == len(expected)
    if expected:
        assert file.tell() == offset + len(expected)
    transport.write(b"after")
    assert await receive(peer, 5) == b"after"


async def test_reading_pauses_while_a_file_is_sent(
    loop: whorl.EventLoop, connect: Connect, kind: str, file: BinaryIO, way: str
) -> None:
    protocol = Recorder()
    transport, peer = await connect(kind, protocol, small=True)
    sending = loop.create_task(loop.sendfile(transport, file))
    await receive(peer, 1000)
    peer.send(b"hello")
    await turns(5)
    assert not protocol.received
    assert not transport.is_reading()
    await receive(peer, len(DATA) - 1000)
    await sending
    assert transport.is_reading()
    assert await protocol.until_received(5) == b"hello"
    assert transport.get_protocol() is protocol


async def test_a_transport_that_was_paused_stays_paused(
    loop: whorl.EventLoop, connect: Connect, kind: str, file: BinaryIO, way: str
) -> None:
    protocol = Recorder()
    transport, peer = await connect(kind, protocol)
    transport.pause_reading()
    sending = loop.create_task(loop.sendfile(transport, file))
    await receive(peer, len(DATA))
    await sending
    peer.send(b"hello")
    await turns(5)
    assert not protocol.received
    transport.resume_reading()
    assert await protocol.until_received(5) == b"hello"


async def test_writing_is_refused_while_the_kernel_sends(
    loop: whorl.EventLoop, connect: Connect, kind: str, file: BinaryIO
) -> None:
    transport, peer = await connect(kind, Recorder(), small=True)
    sending = loop.create_task(loop.sendfile(transport, file))
    await receive(peer, 1000)
    with pytest.raises(RuntimeError, match="unable to write; sendfile is in progress"):
        transport.write(b"data")
    with pytest.raises(RuntimeError, match="unable to writelines; sendfile is in progress"):
        transport.writelines([b"data"])
    with pytest.raises(RuntimeError, match="Empty waiter is already set"):
        await loop.sendfile(transport, file)
    assert digest(await receive(peer, len(DATA) - 1000)) == digest(DATA[1000:])
    await sending


async def test_a_peer_that_goes_in_the_middle_is_an_error_over_a_transport_too(
    loop: whorl.EventLoop, connect: Connect, kind: str, file: BinaryIO, way: str
) -> None:
    protocol = Recorder()
    transport, peer = await connect(kind, protocol, small=True)
    sending = loop.create_task(loop.sendfile(transport, file))
    await receive(peer, 1000)
    peer.close()
    with pytest.raises(ConnectionError):
        await sending
    assert 0 < file.tell() < len(DATA)
    transport.abort()
    await protocol.until_lost()


@pytest.mark.parametrize("end", ["close", "abort"])
async def test_a_transport_that_is_ended_ends_its_sendfile(
    loop: whorl.EventLoop, connect: Connect, kind: str, file: BinaryIO, way: str, end: str
) -> None:
    protocol = Recorder()
    transport, peer = await connect(kind, protocol, small=True)
    sending = loop.create_task(loop.sendfile(transport, file))
    await receive(peer, 1000)
    getattr(transport, end)()
    if end == "close":  # The protocol's own writes still go out.
        receiving = loop.create_task(receive_all(peer))
    with pytest.raises(ConnectionError):
        await sending
    assert await protocol.until_lost() is None
    if end == "close":
        await receiving
    with pytest.raises(RuntimeError, match="Transport is closing"):
        await loop.sendfile(transport, file)


async def test_a_cancelled_sendfile_leaves_a_transport_that_works(
    loop: whorl.EventLoop, connect: Connect, kind: str, file: BinaryIO, way: str
) -> None:
    protocol = Recorder()
    transport, peer = await connect(kind, protocol, small=True)
    transport.set_write_buffer_limits(0)
    sending = loop.create_task(loop.sendfile(transport, file))
    await receive(peer, 1000)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    sent = file.tell()
    transport.write(b"after")
    assert digest(await receive(peer, sent - 1000 + 5)) == digest(DATA[1000:sent] + b"after")
    peer.send(b"hello")
    assert await protocol.until_received(5) == b"hello"
    assert transport.get_protocol() is protocol
    await protocol.until(lambda: not transport._protocol_paused)
    assert protocol.calls.count("pause_writing") == protocol.calls.count("resume_writing")


async def test_a_sendfile_cancelled_before_it_began_leaves_a_transport_that_works(
    loop: whorl.EventLoop, connect: Connect, kind: str, file: BinaryIO
) -> None:
    protocol = Recorder()
    transport, peer = await connect(kind, protocol, small=True)
    transport.write(noise(100_000))
    sending = loop.create_task(loop.sendfile(transport, file))
    await turns(2)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    transport.write(b"after")
    assert transport.is_reading()
    assert (await receive(peer, 100_005))[-5:] == b"after"
    assert file.tell() == 0


async def test_a_connection_lost_before_the_file_began_is_an_error(
    loop: whorl.EventLoop, connect: Connect, kind: str, file: BinaryIO
) -> None:
    transport, _ = await connect(kind, Recorder(), small=True)
    transport.write(noise(100_000))
    sending = loop.create_task(loop.sendfile(transport, file))
    await turns(2)
    transport.abort()
    with pytest.raises(ConnectionError):
        await sending


async def test_a_sendfile_that_is_cancelled_while_the_connection_fails(
    loop: whorl.EventLoop, connect: Connect, kind: str, file: BinaryIO
) -> None:
    protocol = Recorder()
    transport, peer = await connect(kind, protocol, small=True)
    transport.pause_reading()
    transport.write(noise(100_000))
    sending = loop.create_task(loop.sendfile(transport, file))
    await turns(2)
    first, second = socket_pair("unix")
    loop.add_reader(first, sending.cancel)
    second.send(b"comes before the end of the connection")
    peer.close()
    with pytest.raises((asyncio.CancelledError, ConnectionError)):  # the second where the other event is late
        await sending
    loop.remove_reader(first)
    first.close()
    second.close()
    await protocol.until_lost()
    assert transport.is_closing()


async def test_a_protocol_that_was_paused_hears_that_it_may_go_on(
    loop: whorl.EventLoop, connect: Connect, kind: str
) -> None:
    protocol = Recorder()
    transport, peer = await connect(kind, protocol, small=True)
    transport.write(noise(1_000_000))
    assert protocol.calls[-1] == "pause_writing"
    sending = loop.create_task(loop.sendfile(transport, io.BytesIO(DATA)))
    await receive(peer, 1_000_000)
    assert digest(await receive(peer, len(DATA))) == digest(DATA)
    assert await sending == len(DATA)
    assert protocol.calls[-1] == "resume_writing"


async def test_a_transport_sends_before_its_protocol_has_been_told_of_it(
    loop: whorl.EventLoop, connect: Connect, kind: str, file: BinaryIO
) -> None:
    class Sender(Recorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.sending = loop.create_task(loop.sendfile(transport, file))

    protocol = Sender()
    _, peer = await connect(kind, protocol)
    assert digest(await receive(peer, len(DATA))) == digest(DATA)
    assert await protocol.sending == len(DATA)
    peer.send(b"hello")
    assert await protocol.until_received(5) == b"hello"


async def test_the_peers_end_while_a_file_is_sent_is_seen_afterwards(
    loop: whorl.EventLoop, connect: Connect, kind: str, file: BinaryIO
) -> None:
    protocol = Recorder()
    transport, peer = await connect(kind, protocol, small=True)
    sending = loop.create_task(loop.sendfile(transport, file))
    await receive(peer, 1000)
    peer.shutdown(socket.SHUT_WR)
    await receive(peer, len(DATA) - 1000)
    assert await sending == len(DATA)
    assert await protocol.until_lost() is None
    assert "eof_received" in protocol.calls


async def test_transports_that_cannot_are_refused(loop: whorl.EventLoop) -> None:
    class Strange(asyncio.Transport):
        def is_closing(self) -> bool:
            return False

    with pytest.raises(RuntimeError, match="sendfile is not supported for transport"):
        await loop.sendfile(Strange(), io.BytesIO(DATA))  # type: ignore[arg-type]
    strange: Any = Strange()
    strange._sendfile_compatible = asyncio.constants._SendfileMode.FALLBACK
    with pytest.raises(RuntimeError, match="fallback is disabled and native sendfile is not supported"):
        await loop.sendfile(strange, io.BytesIO(DATA), fallback=False)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="transport should be _FlowControlMixin instance"):
        await loop.sendfile(strange, io.BytesIO(DATA))  # type: ignore[arg-type]


async def test_a_file_goes_over_tls(loop: whorl.EventLoop, file: BinaryIO) -> None:
    received = Recorder()
    server = await loop.create_server(lambda: received, "127.0.0.1", 0, ssl=server_context())
    protocol = Recorder()
    transport, _ = await loop.create_connection(
        lambda: protocol, *server.sockets[0].getsockname(), ssl=client_context(), server_hostname="localhost"
    )
    transport.write(b"before")
    assert await loop.sendfile(transport, file, 5) == len(DATA) - 5
    transport.write(b"after")
    expected = b"before" + DATA[5:] + b"after"
    assert digest(await received.until_received(len(expected))) == digest(expected)
    with pytest.raises(RuntimeError, match="fallback is disabled and native sendfile is not supported"):
        await loop.sendfile(transport, file, fallback=False)
    transport.close()
    await protocol.until_lost()
    await received.until_lost()
    server.close()
    await server.wait_closed()


# Where a file is read from if it is not the kernel that sends it.


@pytest.mark.parametrize("offset", [0, 3])
async def test_a_file_that_was_read_from_is_sent_from_the_offset_on(
    loop: whorl.EventLoop, offset: int
) -> None:
    ours, peer = socket_pair("unix")
    other = socket_pair("unix")
    with peer, other[0], other[1]:
        transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, ours)
        file = io.BytesIO(b"0123456789")
        file.read(5)
        assert await loop.sendfile(transport, file, offset) == 10 - offset
        file.seek(5)
        assert await loop.sock_sendfile(other[0], file, offset) == 10 - offset
        assert peer.recv(100) == other[1].recv(100) == b"0123456789"[offset:]
        transport.abort()
        await asyncio.sleep(0)


class TLSPair:
    """Two ends of a TLS connection, and the server between them."""

    def __init__(self) -> None:
        self.received, self.protocol = Recorder(), Recorder()
        self.transport: Any = None

    async def __aenter__(self) -> TLSPair:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: self.received, "127.0.0.1", 0, ssl=server_context())
        name = self._server.sockets[0].getsockname()
        self.transport, _ = await loop.create_connection(
            lambda: self.protocol, *name, ssl=client_context(), server_hostname="localhost"
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        self.transport.close()
        await self.protocol.until_lost()
        await self.received.until_lost()
        self._server.close()
        await self._server.wait_closed()


async def test_a_file_that_was_read_from_goes_over_tls_from_its_beginning(loop: whorl.EventLoop) -> None:
    file = io.BytesIO(b"0123456789")
    file.read(5)
    async with TLSPair() as pair:
        assert await loop.sendfile(pair.transport, file, 0, 7) == 7
        assert await pair.received.until_received(7) == b"0123456"
    assert file.tell() == 7


@pytest.mark.parametrize(
    ("arguments", "error"),
    [((0, 0), ValueError), ((0, -1), ValueError), ((-1,), ValueError), ((0, "1"), TypeError)],
)
async def test_wrong_numbers_are_refused_over_tls_too(
    loop: whorl.EventLoop, arguments: tuple[Any, ...], error: type[Exception]
) -> None:
    file = io.BytesIO(DATA)
    file.read(5)
    async with TLSPair() as pair:
        with pytest.raises(error, match="must be a"):
            await loop.sendfile(pair.transport, file, *arguments)
        with pytest.raises(ValueError, match="file should be opened in binary mode"):
            await loop.sendfile(pair.transport, Text("text"))  # type: ignore[arg-type]
        assert pair.transport.is_reading()
    assert file.tell() == 5


class Gate(io.BytesIO):
    """A file whose reads wait for the test."""

    def __init__(self) -> None:
        super().__init__(DATA)
        self.began = threading.Event()
        self.may_end = threading.Event()
        self.reads = 0

    def readinto(self, buffer: Any) -> int:
        self.reads += 1
        self.began.set()
        self.may_end.wait(10)
        return super().readinto(buffer)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("method", ["sendfile", "sock_sendfile"])
async def test_a_cancelled_read_leaves_the_file_behind_what_was_sent(
    loop: whorl.EventLoop, connect: Connect, method: str, times: int
) -> None:
    file = Gate()
    transport, _ = await connect("unix", Recorder())
    ours, other = socket_pair("unix")
    with ours, other:
        target: Any = transport if method == "sendfile" else ours
        sending: Any = loop.create_task(getattr(loop, method)(target, file, 7))
        await loop.run_in_executor(None, file.began.wait)
        for _ in range(times):
            sending.cancel()
            await turns(3)
        assert not sending.done()  # The thread would move the file's position later.
        file.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert file.tell() == 7


async def test_a_read_that_is_cancelled_before_a_thread_begins_it_is_not_made(loop: whorl.EventLoop) -> None:
    file, busy = Gate(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    blocker = loop.run_in_executor(None, busy.wait)
    ours, other = socket_pair("unix")
    with ours, other:
        sending = loop.create_task(loop.sock_sendfile(ours, file, 7))
        await turns(3)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert file.tell() == 7
        busy.set()
        await blocker
        await loop.shutdown_default_executor()
        assert file.reads == 0


class Stingy(io.BytesIO):
    """A file that gives little at a time, and has a fileno that is none."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__(DATA)
        self.sizes = sizes

    def readinto(self, buffer: Any) -> int:
        self.sizes.append(len(buffer))
        return super().readinto(memoryview(buffer)[:10_000])


@pytest.mark.parametrize("count", [None, 1, 10_000, SENDFILE_WRITE_SIZE, 25_000])
@pytest.mark.parametrize("method", ["sendfile", "sock_sendfile"])
async def test_a_file_that_gives_little_is_read_until_all_is_sent(
    loop: whorl.EventLoop, connect: Connect, method: str, count: int | None
) -> None:
    sizes: list[int] = []
    expected = DATA if count is None else DATA[:count]
    transport, peer = await connect("unix", Recorder())
    ours, other = socket_pair("unix")
    if method == "sendfile":
        sending = loop.create_task(loop.sendfile(transport, Stingy(sizes), 0, count))
    else:
        sending = loop.create_task(loop.sock_sendfile(ours, Stingy(sizes), 0, count))
    assert digest(await receive(peer if method == "sendfile" else other, len(expected))) == digest(expected)
    assert await sending == len(expected)
    largest = SENDFILE_WRITE_SIZE if method == "sendfile" else SENDFILE_READ_SIZE
    assert max(sizes) == min(largest, count or largest)
    ours.close()
    other.close()


@pytest.mark.parametrize("make_file", [lambda: io.IOBase(), lambda: object()])
async def test_sendfile_of_an_unreadable_file_leaves_the_transport_usable(
    loop: whorl.EventLoop, connect: Connect, make_file: Callable[[], Any]
) -> None:
    protocol = Recorder()
    transport, peer = await connect("tcp", protocol)
    with pytest.raises((AttributeError, io.UnsupportedOperation)):
        await loop.sendfile(transport, make_file())
    assert transport.get_protocol() is protocol
    assert transport.is_reading()
    transport.write(b"after")
    assert await receive(peer, 5) == b"after"
