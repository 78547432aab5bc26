"""A write leaves at once; on a loop that collects, small ones of a turn's callbacks leave together."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import whorl
from tests.aio.conftest import Connect
from tests.aio.sockets_for_tests import Connection, receive, receive_all, socket_pair
from tests.aio.tls_contexts import client_context, server_context
from whorl.aio.transports.public import SocketTransport
from whorl.core import Kernel
from whorl.core.limits import LONGEST_HELD_TICKS, MOST_HELD, SMALL_WRITE, WRITE_VECTORS
from whorl.core.loop.write_coalescer import SENDERS

ROOT = Path(__file__).resolve().parents[2]
Serve = Callable[..., Awaitable[Connection]]


class CountingKernel(Kernel):
    """The real kernel, whose ticks only tests move; notes how many bytes each call has sent."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = 10**12
        self.sent: list[int] = []
        self.room: list[int] = []  # how many bytes each of the next sends takes; 0: it finds no room

    def ticks(self) -> int:
        return self.clock

    def send(self, fd: int, data: Any, offset: int) -> int:
        if self.room:
            size = self.room.pop(0)
            if not size:
                return -errno.EAGAIN
            data, offset = data[offset : offset + size], 0
        self.sent.append(super().send(fd, data, offset))
        return self.sent[-1]

    def send_many(self, fd: int, chunks: list[bytes], first: int, offset: int) -> int:
        self.sent.append(super().send_many(fd, chunks, first, offset))
        return self.sent[-1]


@pytest.fixture(params=["edges", "levels"])
def kernel(request: pytest.FixtureRequest) -> CountingKernel:
    """Return a kernel for each of the ways in which TCP sockets are watched."""
    kernel = CountingKernel()
    kernel.keeps_edges = request.param == "edges"
    return kernel


@pytest.fixture
def collecting(loop: whorl.EventLoop) -> None:
    """Make the loop collect writes."""
    loop.configure(collect_writes=True)


@pytest.fixture(params=["plain", "collecting"])
def either(loop: whorl.EventLoop, request: pytest.FixtureRequest) -> None:
    """Run the test on a loop that collects writes, and on one that does not."""
    loop.configure(collect_writes=request.param == "collecting")


@asynccontextmanager
async def serving(
    loop: whorl.EventLoop, kind: str, base: type[asyncio.Protocol]
) -> AsyncIterator[Callable[[], Awaitable[Connection]]]:
    """Yield a function that connects to a server, and returns the server's transport and a plain socket."""
    made: list[Any] = []
    arrived: asyncio.Queue[Any] = asyncio.Queue()

    class Told(base):  # type: ignore[misc, valid-type]
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            arrived.put_nowait(transport)

    with tempfile.TemporaryDirectory() as folder:
        if kind == "unix":
            server: Any = await loop.create_unix_server(Told, f"{folder}/socket")
        else:
            server = await loop.create_server(Told, "127.0.0.1", 0)

        async def connect() -> Connection:
            peer = socket.socket(server.sockets[0].family)
            peer.setblocking(False)
            await loop.sock_connect(peer, server.sockets[0].getsockname())
            made.append(Connection(await arrived.get(), peer))
            return made[-1]

        try:
            yield connect
        finally:
            for transport, peer in made:
                transport.abort()
                peer.close()
            server.close()
            await server.wait_closed()
    await asyncio.sleep(0)


async def served(
    loop: whorl.EventLoop,
    stack: AsyncExitStack,
    kind: str,
    count: int,
    base: type[asyncio.Protocol] = asyncio.Protocol,
) -> list[Connection]:
    """Return so many connections of a server."""
    connect = await stack.enter_async_context(serving(loop, kind, base))
    return [await connect() for _ in range(count)]


def arrived(peer: socket.socket) -> bytes:
    """Return the data that has arrived at the peer by now."""
    data = b""
    try:
        while block := peer.recv(1_000_000):
            data += block
    except BlockingIOError:
        pass
    return data


async def turn(loop: whorl.EventLoop, *callbacks: Callable[[], object]) -> None:
    """Run these in one turn, with a step of the caller's task behind them, and let that turn end."""
    for callback in callbacks:
        loop.call_soon(callback)
    await asyncio.sleep(0)
    await asyncio.sleep(0)


# A loop as it is made.


async def test_each_write_of_a_callback_leaves_before_it_returns(
    kernel: CountingKernel, loop: whorl.EventLoop, kind: str
) -> None:
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, kind, 1))[0]

        def write() -> None:
            for data in (b"one", b"two", b"three"):
                transport.write(data)
                seen.append(arrived(peer))

        seen: list[bytes] = []
        await turn(loop, write, write, int)
        assert seen == [b"one", b"two", b"three"] * 2
    assert kernel.sent == [3, 3, 5] * 2


def test_a_write_to_another_connection_comes_after_those_before_it(loop: whorl.EventLoop) -> None:
    pairs = [socket_pair("unix") for _ in range(2)]

    async def transports() -> list[Any]:
        return [(await loop.create_connection(asyncio.Protocol, sock=ours))[0] for ours, _ in pairs]

    def write() -> None:
        one.write(b"head ")
        one.write(b"body")
        other.write(b"the first is complete")
        seen.extend(arrived(peer) for _, peer in reversed(pairs))

    one, other = loop.run_until_complete(transports())
    seen: list[bytes] = []
    loop.call_soon(write)
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert seen == [b"the first is complete", b"head body"]
    for transport in (one, other):
        transport.abort()
    for _, peer in pairs:
        peer.close()
    loop.run_until_complete(asyncio.sleep(0))


ENDS_AT_ONCE = """
import asyncio, os, signal, socket, sys, whorl

def end():
    transport.write(b"one ")
    transport.write(b"two")
    if sys.argv[1] == "_exit":
        os._exit(0)
    if sys.argv[1] == "execv":
        os.execv("/bin/true", ["true"])
    if sys.argv[1] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if not os.fork():
        transport.write(b" three")
        transport.write(b" four")
        os._exit(0)
    os.wait()
    os._exit(0)

async def main():
    global transport
    ours = socket.socket(fileno=int(sys.argv[2]))
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
    asyncio.get_running_loop().call_soon(end)
    asyncio.get_running_loop().call_soon(print, "this is too late")
    await asyncio.sleep(0)

whorl.run(main())
"""


@pytest.mark.parametrize(
    ("how", "written"),
    [("_exit", b"one two"), ("execv", b"one two"), ("kill", b"one two"), ("fork", b"one two three four")],
)
def test_a_process_that_ends_at_once_has_sent_what_it_wrote(how: str, written: bytes) -> None:
    ours, peer = socket.socketpair()
    number = ours.fileno()
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", ENDS_AT_ONCE, how, str(number)]
    with ours, peer:
        answer = subprocess.run(command, pass_fds=[number], cwd=ROOT, stdout=subprocess.PIPE, timeout=60)
        ours.close()
        assert answer.stdout == b""
        peer.settimeout(10)
        received = b""
        while data := peer.recv(100):
            received += data
    assert received == written


# Descriptors that programs have.


def write_by_descriptor(sock: Any, peer: socket.socket) -> bytes:
    os.write(sock.fileno(), b"3")
    return b"123"


def send_by_copy(sock: Any, peer: socket.socket) -> bytes:
    with sock.dup() as copy:
        copy.send(b"3")
    return b"123"


def send_file(sock: Any, peer: socket.socket) -> bytes:
    with tempfile.TemporaryFile() as file:
        file.write(b"3")
        file.flush()
        os.sendfile(sock.fileno(), file.fileno(), 0, 1)
    return b"123"


def shut(sock: Any, peer: socket.socket) -> bytes:
    sock.shutdown(socket.SHUT_WR)
    return b"12"


def send_by_inner_socket(sock: Any, peer: socket.socket) -> bytes:
    sock._sock.send(b"3")
    return b"123"


USES = [write_by_descriptor, send_by_copy, send_file, shut, send_by_inner_socket]


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("use", USES)
async def test_use_of_the_descriptor_comes_after_earlier_writes(
    loop: whorl.EventLoop, kind: str, use: Callable[[Any, socket.socket], bytes]
) -> None:
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, kind, 1))[0]
        sock = transport.get_extra_info("socket")  # long before

        def write() -> None:
            transport.write(b"1")
            transport.write(b"2")
            expected.append(use(sock, peer))

        expected: list[bytes] = []
        await turn(loop, write, int, int)
        assert [arrived(peer)] == expected


@pytest.mark.usefixtures("either")
async def test_a_descriptor_that_a_program_kept_is_not_overtaken(loop: whorl.EventLoop, kind: str) -> None:
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, kind, 1))[0]
        with os.fdopen(os.dup(transport.get_extra_info("socket").fileno()), "wb", 0) as kept:

            def write() -> None:
                transport.write(b"1")
                transport.write(b"2")
                kept.write(b"3")

            await turn(loop, write, int, int)
        assert arrived(peer) == b"123"


@pytest.mark.usefixtures("collecting")
@pytest.mark.parametrize("take", [lambda transport: transport.fileno(), lambda transport: transport._sock])
async def test_a_transport_holds_nothing_once_it_gave_its_descriptor(
    loop: whorl.EventLoop, kind: str, take: Callable[[Any], Any]
) -> None:
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, kind, 1))[0]
        take(transport)
        seen: list[bytes] = []
        await turn(loop, lambda: transport.write(b"1"), lambda: seen.append(arrived(peer)))
        assert seen == [b"1"]


LOOKS: list[Callable[[Any], object]] = [
    lambda sock: sock.getpeername(),
    lambda sock: sock.getsockname(),
    lambda sock: sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF),
    lambda sock: sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    lambda sock: (sock.family, sock.type, sock.proto, sock.get_inheritable()),
    lambda sock: (sock.gettimeout(), sock.setblocking(False), sock.settimeout(0)),
    repr,
]


@pytest.mark.usefixtures("collecting")
@pytest.mark.parametrize("look", LOOKS)
async def test_reading_names_and_options_of_the_socket_lets_writes_wait(
    loop: whorl.EventLoop, look: Callable[[Any], object]
) -> None:
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, "tcp", 1))[0]
        look(transport.get_extra_info("socket"))

        def write() -> None:
            transport.write(b"1")
            look(transport.get_extra_info("socket"))
            seen.append(arrived(peer))

        seen: list[bytes] = []
        await turn(loop, write, int, int)
        assert (seen, arrived(peer)) == ([b""], b"1")


async def test_the_socket_says_what_asyncios_says(loop: whorl.EventLoop, connect: Connect, kind: str) -> None:
    transport, _ = await connect(kind, asyncio.Protocol())
    sock = transport.get_extra_info("socket")
    stock = asyncio.trsock.TransportSocket(sock._sock)
    assert isinstance(sock, asyncio.trsock.TransportSocket)
    assert repr(sock) == repr(stock)
    for name in ("family", "type", "proto"):
        assert getattr(sock, name) == getattr(stock, name)
    for name in ("fileno", "getpeername", "getsockname", "get_inheritable", "gettimeout"):
        assert getattr(sock, name)() == getattr(stock, name)()
    option = (socket.SOL_SOCKET, socket.SO_TYPE)
    assert sock.getsockopt(*option) == stock.getsockopt(*option) == socket.SOCK_STREAM


@pytest.mark.usefixtures("collecting")
async def test_a_socket_that_the_program_made_sends_at_once(
    loop: whorl.EventLoop, connect: Connect, kind: str
) -> None:
    transport, peer = await connect(kind, asyncio.Protocol())
    seen: list[bytes] = []
    await turn(loop, lambda: transport.write(b"1"), lambda: seen.append(arrived(peer)))
    assert seen == [b"1"]


@pytest.mark.usefixtures("collecting")
async def test_a_connection_that_the_loop_made_is_collected(loop: whorl.EventLoop, tmp_path: Path) -> None:
    seen: list[bytes] = []
    for family, address in ((socket.AF_UNIX, str(tmp_path / "socket")), (socket.AF_INET, ("127.0.0.1", 0))):
        with socket.socket(family) as listener:
            listener.bind(address)
            listener.listen()
            transport: Any
            if family == socket.AF_UNIX:
                transport, _ = await loop.create_unix_connection(asyncio.Protocol, listener.getsockname())
            else:
                transport, _ = await loop.create_connection(asyncio.Protocol, *listener.getsockname())
            peer, _ = listener.accept()
            peer.setblocking(False)
            await turn(loop, lambda t=transport: t.write(b"1"), lambda p=peer: seen.append(arrived(p)))  # type: ignore[misc]
            assert (seen.pop(), arrived(peer)) == (b"", b"1")
            transport.abort()
            peer.close()
        await asyncio.sleep(0)


# For how long writes are held.


@pytest.mark.usefixtures("collecting")
def test_the_write_of_the_only_callback_of_a_turn_leaves_at_once(
    kernel: CountingKernel, loop: whorl.EventLoop, kind: str
) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            transport, peer = (await served(loop, stack, kind, 1))[0]
            done = loop.create_future()

            def write() -> None:
                for data in (b"one", b"two"):
                    transport.write(data)
                    seen.append(arrived(peer))
                done.set_result(None)

            loop.call_later(0, write)  # so that no step of a task waits behind it
            await done

    seen: list[bytes] = []
    loop.run_until_complete(main())
    assert seen == [b"one", b"two"]


@pytest.mark.usefixtures("collecting")
async def test_the_answer_to_a_lone_peer_leaves_at_once(loop: whorl.EventLoop, kind: str) -> None:
    class Echo(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.transport.write(data)
            seen.append(arrived(peer))
            done.set_result(None)

    seen: list[bytes] = []
    async with AsyncExitStack() as stack:
        _, peer = (await served(loop, stack, kind, 1, Echo))[0]
        done = loop.create_future()
        peer.send(b"?")
        await done
        assert seen == [b"?"]


@pytest.mark.usefixtures("collecting")
async def test_writes_of_a_turn_leave_when_more_connections_hold_some_than_callbacks_wait(
    kernel: CountingKernel, loop: whorl.EventLoop, kind: str
) -> None:
    async with AsyncExitStack() as stack:
        connections = await served(loop, stack, kind, 7)

        def write(number: int) -> None:
            connections[number][0].write(b"x" * (number + 1))
            seen.append(len(kernel.sent))

        seen: list[int] = []
        await turn(loop, *(lambda n=n: write(n) for n in range(7)))  # type: ignore[misc]
        # Seven callbacks and a step of this task: 5 hold something, 3 wait; then 2 hold something, 1 waits.
        assert seen == [0, 0, 0, 0, 0, 5, 5]
        assert kernel.sent == [1, 2, 3, 4, 5, 6, 7]
        assert [arrived(peer) for _, peer in connections] == [b"x" * n for n in range(1, 8)]


@pytest.mark.usefixtures("collecting")
async def test_writes_of_a_turn_to_a_connection_leave_in_one_call(
    kernel: CountingKernel, loop: whorl.EventLoop, kind: str
) -> None:
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, kind, 1))[0]
        for count in range(1, 4):
            await turn(loop, *(lambda n=n: transport.write(b"%d" % n) for n in range(10)))  # type: ignore[misc]
            assert kernel.sent == [10] * count
        assert arrived(peer) == b"0123456789" * 3


@pytest.mark.usefixtures("collecting")
async def test_tls_writes_of_a_turn_leave_in_one_call(kernel: CountingKernel, loop: whorl.EventLoop) -> None:
    class Reader(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            received.extend(data)
            if len(received) == 10:
                complete.set_result(None)

    made: asyncio.Future[Any] = loop.create_future()
    complete = loop.create_future()
    received = bytearray()

    class Served(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            made.set_result(transport)

    server = await loop.create_server(Served, "127.0.0.1", 0, ssl=server_context())
    client, _ = await loop.create_connection(
        Reader, *server.sockets[0].getsockname(), ssl=client_context(), server_hostname="localhost"
    )
    transport = await made
    del kernel.sent[:]
    await turn(loop, *(lambda n=n: transport.write(b"%d" % n) for n in range(10)))  # type: ignore[misc]
    assert len(kernel.sent) == 1
    await complete
    assert received == b"0123456789"
    client.abort()
    transport.abort()
    server.close()
    await server.wait_closed()
    await asyncio.sleep(0)


@pytest.mark.usefixtures("collecting")
async def test_streams_that_drain_are_collected_too(kernel: CountingKernel, loop: whorl.EventLoop) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        for _ in range(3):
            writer.write(b"x")
            await writer.drain()
        seen.append(list(kernel.sent))
        writer.close()

    seen: list[list[int]] = []
    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    peers = []
    for _ in range(3):
        peers.append(socket.create_connection(server.sockets[0].getsockname()))
        await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.sleep(0)
    for peer in peers:
        peer.send(b"?")
    while len(seen) < 3:
        await asyncio.sleep(0)
    for peer in peers:
        peer.setblocking(False)
        assert await receive_all(peer) == b"xxx"
        peer.close()
    assert seen[0] == []
    server.close()
    await server.wait_closed()


@pytest.mark.usefixtures("collecting")
@pytest.mark.parametrize("later", [LONGEST_HELD_TICKS + 1, -1])
async def test_a_turn_that_takes_its_time_sends_what_is_held(
    kernel: CountingKernel, loop: whorl.EventLoop, later: int
) -> None:
    async with AsyncExitStack() as stack:
        connections = await served(loop, stack, "tcp", 3)

        def write(number: int, later: int) -> None:
            seen.append(len(kernel.sent))
            connections[number][0].write(b"x")
            kernel.clock += later

        seen: list[int] = []
        await turn(
            loop,
            lambda: write(0, 0),
            lambda: write(1, later),
            lambda: write(2, 0),
            *[lambda: seen.append(len(kernel.sent))] * 6,
        )
        assert seen[:4] == [0, 0, 2, 2]


@pytest.mark.usefixtures("collecting")
async def test_the_time_counts_from_the_first_of_what_is_held(
    kernel: CountingKernel, loop: whorl.EventLoop
) -> None:
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, "tcp", 1))[0]

        def write() -> None:
            kernel.clock += LONGEST_HELD_TICKS + 1  # before anything is written
            transport.write(b"x")

        for _ in range(2):
            seen: list[bytes] = []
            await turn(loop, write, lambda seen=seen: seen.append(arrived(peer)), int)  # type: ignore[misc]
            assert (seen, arrived(peer)) == ([b""], b"x")


@pytest.mark.usefixtures("collecting")
async def test_a_callback_that_takes_its_time_sends_with_its_next_write(
    kernel: CountingKernel, loop: whorl.EventLoop
) -> None:
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, "tcp", 1))[0]

        def write() -> None:
            transport.write(b"one")
            kernel.clock += LONGEST_HELD_TICKS
            transport.write(b"two")
            seen.append(arrived(peer))
            kernel.clock += 1
            transport.write(b"three")
            seen.append(arrived(peer))

        seen: list[bytes] = []
        await turn(loop, write, int, int)
        assert seen == [b"", b"onetwothree"]


@pytest.mark.usefixtures("collecting")
@pytest.mark.parametrize("make", [bytes, bytearray, lambda size: memoryview(bytes(size))])
async def test_a_large_write_takes_along_what_is_held(
    kernel: CountingKernel, loop: whorl.EventLoop, make: Callable[[int], Any]
) -> None:
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, "tcp", 1))[0]

        def write() -> None:
            transport.write(make(SMALL_WRITE + 1))
            seen.append(arrived(peer))
            transport.write(b"one")
            transport.write(make(SMALL_WRITE + 1))
            seen.append(arrived(peer))

        seen: list[bytes] = []
        await turn(loop, write, int, int)
        large = bytes(SMALL_WRITE + 1)
        assert seen == [large, b"one" + large]


@pytest.mark.usefixtures("collecting")
async def test_held_writes_are_limited_in_bytes_and_number(
    kernel: CountingKernel, loop: whorl.EventLoop
) -> None:
    async with AsyncExitStack() as stack:
        transport, _ = (await served(loop, stack, "tcp", 1))[0]

        def write() -> None:
            for _ in range(MOST_HELD // SMALL_WRITE):
                transport.write(bytes(SMALL_WRITE))
            assert kernel.sent == []
            transport.write(b"x")
            assert kernel.sent == [MOST_HELD + 1]
            for _ in range(WRITE_VECTORS):
                transport.write(b"x")
            assert kernel.sent == [MOST_HELD + 1, WRITE_VECTORS]

        await turn(loop, write, int, int)


@pytest.mark.usefixtures("collecting")
async def test_held_writes_do_not_pause_the_protocol(loop: whorl.EventLoop) -> None:
    class Protocol(asyncio.Protocol):
        def pause_writing(self) -> None:
            paused.append(True)

    paused: list[bool] = []
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, "tcp", 1, Protocol))[0]
        transport.set_write_buffer_limits(high=4)

        def write() -> None:
            for data in (b"one", b"two", b"three", b"four!"):
                transport.write(data)

        await turn(loop, write, int, int)
        assert arrived(peer) == b"onetwothreefour!"
        assert not paused


@pytest.mark.usefixtures("collecting")
async def test_held_write_copies_mutable_data(loop: whorl.EventLoop) -> None:
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, "tcp", 1))[0]

        def write() -> None:
            transport.write(data)
            data[:] = b"XXX"

        data = bytearray(b"one")
        await turn(loop, write, int, int)
        assert arrived(peer) == b"one"


@pytest.mark.usefixtures("collecting")
async def test_held_writes_wait_if_the_socket_is_full(
    kernel: CountingKernel, loop: whorl.EventLoop, kind: str
) -> None:
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, kind, 1))[0]
        for room in ([0], [1]):
            kernel.room = room
            await turn(loop, lambda: transport.write(b"one"), int, int)
            peer.send(b"?")  # an event, with which the socket is found writable
            assert await receive(peer, 3) == b"one"
            assert transport.get_write_buffer_size() == 0
        await asyncio.sleep(0)
        assert arrived(peer) == b""


@pytest.mark.usefixtures("collecting")
async def test_held_writes_sent_in_part_go_on_with_the_rest(
    kernel: CountingKernel, loop: whorl.EventLoop, kind: str
) -> None:
    class Protocol(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            if data == b"write":
                self.transport.write(b"one ")
                self.transport.write(b"two")
            received.put_nowait(data)

    received: asyncio.Queue[bytes] = asyncio.Queue()
    async with AsyncExitStack() as stack:
        (_, peer), (_, other) = await served(loop, stack, kind, 2, Protocol)
        kernel.room = [4, 1, 0]
        for data in (b"write", b"?", b"?"):  # Each is an event, with which the socket is found writable.
            peer.send(data)
            other.send(b"?")
            await received.get()
            await received.get()
        assert await receive(peer, 7) == b"one two"
        await asyncio.sleep(0)
        assert arrived(peer) == b""


@pytest.mark.usefixtures("collecting")
async def test_held_writes_leave_no_watch_for_writability(loop: whorl.EventLoop, kind: str) -> None:
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, kind, 1))[0]

        def write() -> None:
            transport.write(b"one")
            transport.pause_reading()

        await turn(loop, write, int, int)
        await asyncio.sleep(0)
        events = loop.metrics().events
        for _ in range(3):
            await asyncio.sleep(0)
        assert loop.metrics().events == events
        assert arrived(peer) == b"one"


# Writes that are not held.


@pytest.mark.usefixtures("collecting")
def test_outside_of_callbacks_nothing_is_held(loop: whorl.EventLoop) -> None:
    async def begin() -> Connection:
        return (await served(loop, stack, "tcp", 1))[0]

    stack = AsyncExitStack()
    transport, peer = loop.run_until_complete(begin())
    transport.write(b"one")
    assert arrived(peer) == b"one"
    loop.run_until_complete(stack.aclose())


@pytest.mark.usefixtures("collecting")
async def test_writes_of_another_thread_are_not_held(loop: whorl.EventLoop) -> None:
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, "tcp", 1))[0]

        def write() -> None:
            thread = threading.Thread(target=transport.write, args=[b"one"])
            thread.start()
            thread.join()
            seen.append(arrived(peer))

        seen: list[bytes] = []
        await turn(loop, write, int, int)
        assert seen == [b"one"]


async def test_collecting_can_be_ended(loop: whorl.EventLoop, kind: str) -> None:
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, kind, 1))[0]
        for collects in (True, "turn", False):
            loop.configure(collect_writes=collects)  # type: ignore[arg-type]
            loop.configure()
            await asyncio.sleep(0)
            seen: list[bytes] = []
            await turn(loop, lambda: transport.write(b"one"), lambda s=seen: s.append(arrived(peer)), int)  # type: ignore[misc]
            assert (seen[0], arrived(peer)) == ((b"", b"one") if collects else (b"one", b""))


@pytest.mark.usefixtures("collecting")
async def test_held_writes_leave_with_the_callback_that_stops_collecting(loop: whorl.EventLoop) -> None:
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, "tcp", 1))[0]

        def stop() -> None:
            loop.configure(collect_writes=False)
            seen.append(arrived(peer))

        def write() -> None:
            transport.write(b"two")
            seen.append(arrived(peer))

        seen: list[bytes] = []
        await turn(loop, lambda: transport.write(b"one"), stop, write, int)
        assert seen == [b"", b"onetwo"]


@pytest.mark.parametrize("collects", ["callback", 2, None, "", b"turn", []])
def test_configure_refuses_invalid_values_of_collect_writes(loop: whorl.EventLoop, collects: Any) -> None:
    with pytest.raises(ValueError, match="collect_writes is True, False or 'turn'"):
        loop.configure(collect_writes=collects)


# The duty: what is held leaves before anything that could be compared with it.

ACTS: dict[str, Callable[[Any], Any]] = {
    "abort": lambda transport: transport.abort(),
    "can_write_eof": lambda transport: transport.can_write_eof(),
    "close": lambda transport: transport.close(),
    "fileno": lambda transport: transport.fileno(),
    "get_extra_info": lambda transport: transport.get_extra_info("socket"),
    "get_protocol": lambda transport: transport.get_protocol(),
    "get_write_buffer_limits": lambda transport: transport.get_write_buffer_limits(),
    "get_write_buffer_size": lambda transport: transport.get_write_buffer_size() == 0 or 1 / 0,
    "has_ref": lambda transport: transport.has_ref(),
    "is_active": lambda transport: transport.is_active(),
    "is_closing": lambda transport: transport.is_closing(),  # `drain` asks it
    "is_reading": lambda transport: transport.is_reading(),
    "pause_reading": lambda transport: transport.pause_reading(),
    "ref": lambda transport: transport.ref(),
    "resume_reading": lambda transport: (transport.pause_reading(), transport.resume_reading()),
    "set_protocol": lambda transport: transport.set_protocol(asyncio.Protocol()),
    "set_write_buffer_limits": lambda transport: transport.set_write_buffer_limits(high=0),
    "unref": lambda transport: (transport.unref(), transport.ref()),
    "write": lambda transport: transport.write(b""),
    "write_eof": lambda transport: transport.write_eof(),
    "writelines": lambda transport: transport.writelines([b" ", b"two"]),
}


def test_each_public_method_is_known_to_send_what_is_held_or_not() -> None:
    public = {name for name in dir(SocketTransport) if not name.startswith("_")}
    assert public == ACTS.keys() | {"data", "loop"}, "test_method_lists.py says where a method is listed"
    assert public > SENDERS


@pytest.mark.usefixtures("collecting")
@pytest.mark.parametrize("act", ACTS)
async def test_a_public_method_sends_what_is_held_or_lets_it_wait(
    loop: whorl.EventLoop, kind: str, act: str
) -> None:
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, kind, 1))[0]

        def write() -> None:
            transport.write(b"one")
            seen.append(arrived(peer))
            ACTS[act](transport)
            seen.append(arrived(peer))

        seen: list[bytes] = []
        added = b" two" if act == "writelines" else b""
        await turn(loop, write, int, int)
        assert seen == [b"", b"one" + added if act in SENDERS else b""]
        assert arrived(peer) == (b"" if act in SENDERS else b"one")


ELSEWHERE: dict[str, Callable[[Any, Any], object]] = {
    "repr": lambda loop, transport: repr(transport),
    "sendfile": lambda loop, transport: transport._make_empty_waiter() and transport._reset_empty_waiter(),
    "fork": lambda loop, transport: fork(),
    "buffer": lambda loop, transport: transport._buffer,
}


def fork() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)


@pytest.mark.usefixtures("collecting")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("act", ELSEWHERE)
async def test_held_writes_leave_before_others_look(loop: whorl.EventLoop, kind: str, act: str) -> None:
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, kind, 1))[0]

        def write() -> None:
            transport.write(b"one")
            seen.append(arrived(peer))
            ELSEWHERE[act](loop, transport)
            seen.append(arrived(peer))

        seen: list[bytes] = []
        await turn(loop, write, int, int)
        assert seen == [b"", b"one"]
        assert arrived(peer) == b""


@pytest.mark.usefixtures("collecting")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_a_forked_child_holds_nothing(loop: whorl.EventLoop) -> None:
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, "tcp", 1))[0]

        def write() -> None:
            transport.write(b"one")
            child = os.fork()
            if not child:
                transport.write(b" two")
                os._exit(0)
            os.waitpid(child, 0)
            transport.write(b" three")
            seen.append(arrived(peer))

        seen: list[bytes] = []
        await turn(loop, write, int, int)
        assert (seen, arrived(peer)) == ([b"one two"], b" three")


@pytest.mark.usefixtures("collecting")
async def test_held_writes_leave_before_a_program_starts(loop: whorl.EventLoop) -> None:
    class Protocol(asyncio.SubprocessProtocol):
        def __init__(self) -> None:
            self.exited = loop.create_future()

        def process_exited(self) -> None:
            self.exited.set_result(None)

    def spawn(*args: Any, **options: Any) -> Any:
        seen.append(arrived(peer))
        return real(*args, **options)

    async def start() -> None:
        transport.write(b"one")
        program, protocol = await loop.subprocess_exec(Protocol, sys.executable, "-c", "")
        await protocol.exited
        program.close()

    seen: list[bytes] = []
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, "tcp", 1))[0]
        real, loop._host.spawn = loop._host.spawn, spawn  # type: ignore[method-assign]
        task = loop.create_task(start())
        await turn(loop, int, int)
        await task
        assert seen == [b"one"]


@pytest.mark.usefixtures("collecting")
async def test_held_writes_leave_before_a_failure_is_reported(loop: whorl.EventLoop) -> None:
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, "tcp", 1))[0]

        def fail() -> None:
            transport.write(b"two")
            raise ValueError("on purpose")

        def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            seen.append(arrived(peer))
            transport.write(b"three")
            seen.append(arrived(peer))

        seen: list[bytes] = []
        loop.set_exception_handler(report)
        await turn(loop, lambda: transport.write(b"one"), fail, int)
        assert seen == [b"onetwo", b"three"]


@pytest.mark.usefixtures("collecting")
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_held_writes_leave_if_an_exit_leaves_the_loop(
    loop: whorl.EventLoop, error: type[BaseException]
) -> None:
    async def begin() -> Connection:
        return (await served(loop, stack, "tcp", 1))[0]

    def leave() -> None:
        raise error

    stack = AsyncExitStack()
    transport, peer = loop.run_until_complete(begin())
    for callback in (lambda: transport.write(b"one"), leave, int, int):
        loop.call_soon(callback)
    with pytest.raises(error):
        loop.run_forever()
    assert arrived(peer) == b"one"
    loop.run_until_complete(stack.aclose())


@pytest.mark.usefixtures("collecting")
async def test_held_writes_leave_in_debug_mode(loop: whorl.EventLoop) -> None:
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, "tcp", 1))[0]
        loop.set_debug(True)
        await asyncio.sleep(0)
        await turn(loop, lambda: transport.write(b"one"), int, int)
        loop.set_debug(False)
        assert arrived(peer) == b"one"


@pytest.mark.usefixtures("collecting")
async def test_held_writes_are_lost_with_the_connection(
    kernel: CountingKernel, loop: whorl.EventLoop
) -> None:
    class Protocol(asyncio.Protocol):
        def connection_lost(self, error: BaseException | None) -> None:
            lost.append(error)

    lost: list[BaseException | None] = []
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, "unix", 1, Protocol))[0]
        transport.pause_reading()  # or it finds the end
        peer.close()

        def write() -> None:
            transport.write(b"one")
            transport.write(b"two")
            assert kernel.sent == []

        await turn(loop, write, int, int)
        assert kernel.sent == [-errno.EPIPE]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [type(error) for error in lost] == [BrokenPipeError]


@pytest.mark.usefixtures("collecting")
async def test_a_large_write_after_a_failure_is_dropped(
    kernel: CountingKernel, loop: whorl.EventLoop
) -> None:
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, "unix", 1))[0]
        transport.pause_reading()

        def write() -> None:
            transport.write(b"one")
            peer.close()
            transport.write(bytearray(SMALL_WRITE + 1))

        await turn(loop, write, int, int)
        assert kernel.sent == [-errno.EPIPE]
        assert transport.is_closing()


# The loop for servers.


def test_the_server_loop_collects() -> None:
    for factory, collects in ((whorl.server_loop, True), (whorl.new_event_loop, False)):
        loop = factory()
        assert isinstance(loop, whorl.EventLoop)
        assert loop._collector.is_on is collects
        loop.close()


def test_run_takes_a_factory_of_loops() -> None:
    async def main() -> bool:
        loop: Any = asyncio.get_running_loop()
        return bool(loop._collector.is_on)

    assert whorl.run(main(), loop_factory=whorl.server_loop)
    with whorl.Runner(loop_factory=whorl.server_loop) as runner:
        assert runner.run(main())
    never = main()
    with pytest.raises(TypeError, match="tasks: options are for loops that loop_factory does not make"):
        whorl.run(never, loop_factory=whorl.server_loop, tasks="compiled")
    never.close()
