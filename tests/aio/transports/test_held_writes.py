"""The kernel holds the pieces that a callback writes, and they leave in one packet with the last one."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import os
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import whorl
from tests.aio.conftest import Connect
from tests.aio.sockets_for_tests import Connection, receive, receive_all
from tests.aio.tls_contexts import client_context, server_context
from whorl import inspector
from whorl.core import Kernel
from whorl.core.limits import LONGEST_HELD_TICKS, SMALL_WRITE
from whorl.handles import UDP

ROOT = Path(__file__).resolve().parents[2]


class NotingKernel(Kernel):
    """The real kernel, whose ticks only tests move; notes each call that sends."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = 10**12
        self.calls: list[str | int] = []
        self.room: list[int] = []  # how many bytes each of the next sends takes; 0: it finds no room
        self.refuses_push = False

    def ticks(self) -> int:
        return self.clock

    def send(self, fd: int, data: Any, offset: int) -> int:
        return self._noted("send", super().send, fd, data, offset)

    def send_more(self, fd: int, data: Any, offset: int) -> int:
        return self._noted("more", super().send_more, fd, data, offset)

    def _noted(self, name: str, call: Callable[..., int], fd: int, data: Any, offset: int) -> int:
        if self.room:
            size = self.room.pop(0)
            if not size:
                return -errno.EAGAIN
            data, offset = data[offset : offset + size], 0
        self.calls.append(name)
        return call(fd, data, offset)

    def send_many(self, fd: int, chunks: list[bytes], first: int, offset: int) -> int:
        self.calls.append("many")
        return super().send_many(fd, chunks, first, offset)

    def push(self, fd: int) -> int:
        self.calls.append("push")
        return -errno.EPERM if self.refuses_push else super().push(fd)

    def taken(self) -> list[str | int]:
        """Return the calls since the last time."""
        calls, self.calls = self.calls, []
        return calls


@pytest.fixture(params=["edges", "levels"])
def kernel(request: pytest.FixtureRequest) -> NotingKernel:
    """Return a kernel for each of the ways in which TCP sockets are watched."""
    kernel = NotingKernel()
    kernel.keeps_edges = request.param == "edges"
    return kernel


@pytest.fixture
def collecting(loop: whorl.EventLoop) -> None:
    """Make the loop collect writes."""
    loop.configure(collect_writes=True)


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


async def writes_pieces(loop: whorl.EventLoop, connection: Connection) -> None:
    """Let a connection write three pieces in one callback, so that it is expected to do so again."""
    await turn(loop, lambda: [connection.transport.write(piece) for piece in (b"1", b"2", b"3")])
    assert await receive(connection.peer, 3) == b"123"


def packets_sent(transport: Any) -> int:
    """Return how many packets with data a connection has sent (man 7 tcp, TCP_INFO: tcpi_data_segs_out)."""
    sock = transport.get_extra_info("socket")
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160)
    return int.from_bytes(info[156:160], sys.byteorder)


# Pieces.


async def test_first_pieces_of_a_connection_leave_at_once(
    kernel: NotingKernel, loop: whorl.EventLoop
) -> None:
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, "tcp", 1))[0]

        def write() -> None:
            transport.write(b"one")
            seen.append(arrived(peer))

        seen: list[bytes] = []
        for _ in range(3):
            await turn(loop, write, int)
        assert seen == [b"one"] * 3
        assert kernel.taken() == ["send"] * 3


async def test_pieces_of_a_callback_leave_in_one_packet_when_it_has_ended(
    kernel: NotingKernel, loop: whorl.EventLoop
) -> None:
    async with AsyncExitStack() as stack:
        connection = (await served(loop, stack, "tcp", 1))[0]
        transport, peer = connection
        await writes_pieces(loop, connection)
        assert kernel.taken() == ["send", "more", "more", "push"]
        before = packets_sent(transport)

        def write() -> None:
            for data in (b"one", b"two"):
                transport.write(data)
                seen.append(arrived(peer))

        seen: list[bytes] = []
        await turn(loop, write, lambda: seen.append(arrived(peer)))
        assert seen == [b"", b"", b"onetwo"]
        assert kernel.taken() == ["more", "more", "push"]
        assert packets_sent(transport) == before + 1


async def test_the_last_piece_takes_along_those_before_it(
    kernel: NotingKernel, loop: whorl.EventLoop
) -> None:
    async with AsyncExitStack() as stack:
        connection = (await served(loop, stack, "tcp", 1))[0]
        transport, peer = connection
        await writes_pieces(loop, connection)
        kernel.taken()
        before = packets_sent(transport)

        def write() -> None:
            for data in (b"one", b"two", b"three"):
                transport.write(data)
                seen.append(arrived(peer))

        seen: list[bytes] = []
        await turn(loop, write)
        assert seen == [b"", b"", b"onetwothree"]
        assert kernel.taken() == ["more", "more", "send"]
        assert packets_sent(transport) == before + 1


async def test_pieces_behind_the_one_that_was_expected_as_the_last_leave_together(
    kernel: NotingKernel, loop: whorl.EventLoop
) -> None:
    async with AsyncExitStack() as stack:
        connection = (await served(loop, stack, "tcp", 1))[0]
        await writes_pieces(loop, connection)
        for expected in (["more", "more", "send", "more", "more", "push"], ["more"] * 4 + ["send"]):
            kernel.taken()
            await turn(loop, lambda: [connection.transport.write(b"x") for _ in range(5)])
            assert arrived(connection.peer) == b"xxxxx"
            assert kernel.taken() == expected


async def test_the_only_callback_of_a_turn_pushes_too(kernel: NotingKernel, loop: whorl.EventLoop) -> None:
    class Answers(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.transport.write(b"head ")
            self.transport.write(b"body")

    async with AsyncExitStack() as stack:
        _, peer = (await served(loop, stack, "tcp", 1, Answers))[0]
        for _ in range(2):
            peer.send(b"?")
            assert await receive(peer, 9) == b"head body"
    assert kernel.taken() == ["send", "more", "push", "more", "send"]


async def test_a_connection_that_writes_once_again_is_sent_at_once_again(
    kernel: NotingKernel, loop: whorl.EventLoop
) -> None:
    async with AsyncExitStack() as stack:
        connection = (await served(loop, stack, "tcp", 1))[0]
        await writes_pieces(loop, connection)
        kernel.taken()
        for expected in (["more", "push"], ["send"]):
            await turn(loop, lambda: connection.transport.write(b"one"))
            assert arrived(connection.peer) == b"one"
            assert kernel.taken() == expected


def test_new_connections_of_a_server_are_expected_to_write_as_the_last_one() -> None:
    async def main() -> list[int]:
        loop: Any = asyncio.get_running_loop()
        packets = []
        async with AsyncExitStack() as stack:
            connect = await stack.enter_async_context(serving(loop, "tcp", asyncio.Protocol))
            for _ in range(2):
                connection = await connect()
                await writes_pieces(loop, connection)
                packets.append(packets_sent(connection.transport))
        return packets

    assert whorl.run(main()) == [2, 1]


async def test_a_large_piece_takes_along_what_is_held(kernel: NotingKernel, loop: whorl.EventLoop) -> None:
    async with AsyncExitStack() as stack:
        connection = (await served(loop, stack, "tcp", 1))[0]
        await writes_pieces(loop, connection)

        def write() -> None:
            connection.transport.write(b"one")
            connection.transport.write(bytearray(SMALL_WRITE + 1))
            seen.append(arrived(connection.peer))

        seen: list[bytes] = []
        await turn(loop, write)
        assert seen == [b"one" + bytes(SMALL_WRITE + 1)]


async def test_lines_take_along_what_is_held(kernel: NotingKernel, loop: whorl.EventLoop) -> None:
    async with AsyncExitStack() as stack:
        connection = (await served(loop, stack, "tcp", 1))[0]
        await writes_pieces(loop, connection)
        kernel.taken()

        def write() -> None:
            connection.transport.write(b"one")
            connection.transport.writelines([b" two", b" three"])
            connection.transport.writelines([b" four"] * 1000)

        await turn(loop, write)
        assert await receive(connection.peer, 13 + 5000) == b"one two three" + b" four" * 1000
        assert kernel.taken()[:2] == ["more", "more"]


async def test_unix_connections_send_each_piece_at_once(kernel: NotingKernel, loop: whorl.EventLoop) -> None:
    async with AsyncExitStack() as stack:
        connection = (await served(loop, stack, "unix", 1))[0]
        for _ in range(2):
            await writes_pieces(loop, connection)
    assert kernel.taken() == ["send"] * 6


async def test_tls_records_of_a_callback_leave_in_one_packet(
    kernel: NotingKernel, loop: whorl.EventLoop
) -> None:
    class Reader(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            received.extend(data)
            if len(received) == 12:
                complete.set_result(None)

    class Served(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            made.set_result(transport)

    made: asyncio.Future[Any] = loop.create_future()
    complete = loop.create_future()
    received = bytearray()
    server = await loop.create_server(Served, "127.0.0.1", 0, ssl=server_context())
    client, _ = await loop.create_connection(
        Reader, *server.sockets[0].getsockname(), ssl=client_context(), server_hostname="localhost"
    )
    transport = await made
    for _ in range(2):
        kernel.taken()
        await turn(loop, lambda: [transport.write(data) for data in (b"one", b"two")])
    assert kernel.taken()[:2] == ["more", "send"]
    await complete
    assert received == b"onetwo" * 2
    client.abort()
    transport.abort()
    server.close()
    await server.wait_closed()
    await asyncio.sleep(0)


async def test_a_stream_that_drains_writes_pieces_of_one_packet(
    kernel: NotingKernel, loop: whorl.EventLoop
) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await reader.readexactly(1)
            for _ in range(3):
                writer.write(b"x")
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    peer = socket.create_connection(server.sockets[0].getsockname())
    peer.setblocking(False)
    for _ in range(2):
        kernel.taken()
        peer.send(b"?")
        assert await receive(peer, 3) == b"xxx"
    assert kernel.taken() == ["more", "more", "send"]
    peer.close()
    server.close()
    await server.wait_closed()


# What is held is the kernel's.


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

class Accepted(asyncio.Protocol):
    def connection_made(self, made):
        global transport
        transport = made
        made.write(b"begin ")
        made.write(b"again ")
        made.write(b"and ")
        asyncio.get_running_loop().call_soon(end)
        asyncio.get_running_loop().call_soon(print, "this is too late")

async def main():
    listener = socket.socket(fileno=int(sys.argv[2]))
    await asyncio.get_running_loop().create_server(Accepted, sock=listener)
    await asyncio.sleep(10)

whorl.run(main())
"""


@pytest.mark.parametrize(
    ("how", "written"),
    [("_exit", b"one two"), ("execv", b"one two"), ("kill", b"one two"), ("fork", b"one two three four")],
)
def test_a_process_that_ends_at_once_has_sent_what_it_wrote(how: str, written: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number = listener.fileno()
        command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", ENDS_AT_ONCE, how, str(number)]
        with socket.create_connection(listener.getsockname()) as peer:
            answer = subprocess.run(command, pass_fds=[number], cwd=ROOT, stdout=subprocess.PIPE, timeout=60)
            assert answer.stdout == b""
            peer.settimeout(10)
            received = b""
            while data := peer.recv(100):
                received += data
    assert received == b"begin again and " + written


async def test_a_forked_child_sends_each_piece_at_once(loop: whorl.EventLoop) -> None:
    async with AsyncExitStack() as stack:
        connection = (await served(loop, stack, "tcp", 1))[0]
        await writes_pieces(loop, connection)
        seen: list[bytes] = []

        def write() -> None:
            child = os.fork()
            if not child:
                try:
                    connection.transport.write(b"one")
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
            seen.append(arrived(connection.peer))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            await turn(loop, write)
        assert seen == [b"one"]


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


@pytest.mark.parametrize("use", USES)
async def test_use_of_the_descriptor_comes_after_earlier_writes(
    loop: whorl.EventLoop, use: Callable[[Any, socket.socket], bytes]
) -> None:
    async with AsyncExitStack() as stack:
        connection = (await served(loop, stack, "tcp", 1))[0]
        sock = connection.transport.get_extra_info("socket")  # long before
        await writes_pieces(loop, connection)

        def write() -> None:
            connection.transport.write(b"1")
            connection.transport.write(b"2")
            expected.append(use(sock, connection.peer))

        expected: list[bytes] = []
        await turn(loop, write, int, int)
        assert [arrived(connection.peer)] == expected


ENDS: dict[str, Callable[[Any], object]] = {
    "write_eof": lambda transport: transport.write_eof(),
    "close": lambda transport: transport.close(),
    "abort": lambda transport: transport.abort(),
}


@pytest.mark.parametrize("end", ENDS)
async def test_held_pieces_leave_before_the_end(loop: whorl.EventLoop, end: str) -> None:
    async with AsyncExitStack() as stack:
        connection = (await served(loop, stack, "tcp", 1))[0]
        await writes_pieces(loop, connection)

        def write() -> None:
            connection.transport.write(b"one ")
            connection.transport.write(b"two")
            ENDS[end](connection.transport)

        await turn(loop, write, int)
        assert await receive_all(connection.peer) == b"one two"


async def test_pieces_that_find_no_room_wait_behind_those_that_are_held(
    kernel: NotingKernel, loop: whorl.EventLoop
) -> None:
    async with AsyncExitStack() as stack:
        connection = (await served(loop, stack, "tcp", 1))[0]
        transport, peer = connection
        for room in ([3, 0], [3, 1], [0], [1]):
            await writes_pieces(loop, connection)
            kernel.room = room
            await turn(loop, lambda: [transport.write(data) for data in (b"one", b"two", b"three")], int)
            peer.send(b"?")  # an event, with which the socket is found writable
            assert await receive(peer, 11) == b"onetwothree"
            assert transport.get_write_buffer_size() == 0


async def test_a_push_that_is_refused_delays_what_is_held_once(
    kernel: NotingKernel, loop: whorl.EventLoop
) -> None:
    async with AsyncExitStack() as stack:
        connection = (await served(loop, stack, "tcp", 1))[0]
        await writes_pieces(loop, connection)
        kernel.refuses_push = True
        for _ in range(2):
            await turn(loop, lambda: [connection.transport.write(data) for data in (b"one", b"two")])
        assert await receive(connection.peer, 12) == b"onetwo" * 2
        assert kernel.taken()[-5:] == ["more", "more", "push", "send", "send"]


OFF = bytes(4)


@pytest.mark.parametrize("option", [(socket.TCP_NODELAY, 0), (socket.TCP_NODELAY, OFF), (socket.TCP_CORK, 0)])
async def test_a_program_that_sets_an_option_for_small_packets_decides_when_they_leave(
    kernel: NotingKernel, loop: whorl.EventLoop, option: tuple[int, Any]
) -> None:
    async with AsyncExitStack() as stack:
        connection = (await served(loop, stack, "tcp", 1))[0]
        await writes_pieces(loop, connection)
        sock = connection.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        kernel.taken()
        await writes_pieces(loop, connection)
        assert kernel.taken() == ["more", "more", "send"]

        def write() -> None:
            connection.transport.write(b"one")
            sock.setsockopt(socket.IPPROTO_TCP, *option)
            connection.transport.write(b"two")

        for _ in range(2):
            await turn(loop, write)
        assert kernel.taken() == ["more", "push", "send", "send", "send"]
        assert not sock.getsockopt(socket.IPPROTO_TCP, option[0])


async def test_a_socket_that_the_program_made_is_sent_at_once(
    kernel: NotingKernel, loop: whorl.EventLoop, connect: Connect
) -> None:
    connection = await connect("tcp", asyncio.Protocol())
    for _ in range(2):
        await writes_pieces(loop, connection)
    assert kernel.taken() == ["send"] * 6


# Nothing overtakes what is held.


async def test_a_write_to_another_connection_comes_after_those_before_it(loop: whorl.EventLoop) -> None:
    async with AsyncExitStack() as stack:
        connections = await served(loop, stack, "tcp", 2)
        for connection in connections:
            await writes_pieces(loop, connection)
        (one, peer), (other, other_peer) = connections

        def write() -> None:
            one.write(b"head ")
            one.write(b"body")
            other.write(b"the first is complete")
            seen.append(arrived(peer))
            one.write(b"again")
            seen.append(arrived(other_peer))

        seen: list[bytes] = []
        await turn(loop, write)
        assert seen == [b"head body", b"the first is complete"]


async def act_by_datagram(loop: whorl.EventLoop) -> Callable[[], object]:
    transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=("127.0.0.1", 9))
    loop.call_later(0.01, transport.close)
    return lambda: transport.sendto(b"?")


async def act_by_pipe(loop: whorl.EventLoop) -> Callable[[], object]:
    reads, writes = os.pipe()
    transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(writes, "wb", 0))

    def act() -> None:
        transport.write(b"?")
        transport.close()
        os.close(reads)

    return act


async def act_by_executor(loop: whorl.EventLoop) -> Callable[[], object]:
    return lambda: loop.run_in_executor(None, int)


async def act_by_socket(loop: whorl.EventLoop) -> Callable[[], object]:
    ours, peer = socket.socketpair()
    ours.setblocking(False)

    def act() -> None:
        with ours, peer, pytest.raises(StopIteration):
            loop.sock_sendall(ours, b"?").__await__().send(None)  # type: ignore[attr-defined]

    return act


async def act_by_own_executor(loop: whorl.EventLoop) -> Callable[[], object]:
    class Executor(concurrent.futures.Executor):
        def submit(self, function: Any, *args: Any) -> Any:  # type: ignore[override]
            return concurrent.futures.Future()

    return lambda: loop.run_in_executor(Executor(), int)


async def act_by_overridden_socket(loop: whorl.EventLoop) -> Callable[[], object]:
    class Socket(socket.socket):
        def send(self, *args: Any) -> int:
            return super().send(*args)

    ours, peer = socket.socketpair()
    own = Socket(fileno=ours.detach())
    own.setblocking(False)

    def act() -> None:
        with own, peer, pytest.raises(StopIteration):
            loop.sock_sendall(own, b"?").__await__().send(None)  # type: ignore[attr-defined]

    return act


async def act_by_udp_handle(loop: whorl.EventLoop) -> Callable[[], object]:
    handle = UDP(loop)
    handle.bind(("127.0.0.1", 0))

    def act() -> None:
        handle.send(b"?", ("127.0.0.1", 9))
        handle.close()

    return act


ACTS = [
    act_by_datagram,
    act_by_pipe,
    act_by_executor,
    act_by_own_executor,
    act_by_socket,
    act_by_overridden_socket,
    act_by_udp_handle,
]


@pytest.mark.parametrize("act", ACTS)
async def test_held_pieces_leave_before_something_else_acts(
    loop: whorl.EventLoop, act: Callable[[whorl.EventLoop], Awaitable[Callable[[], object]]]
) -> None:
    async with AsyncExitStack() as stack:
        connection = (await served(loop, stack, "tcp", 1))[0]
        await writes_pieces(loop, connection)
        call = await act(loop)

        def write() -> None:
            connection.transport.write(b"one")
            seen.append(arrived(connection.peer))
            call()
            seen.append(arrived(connection.peer))

        seen: list[bytes] = []
        await turn(loop, write)
        assert seen == [b"", b"one"]
        await asyncio.sleep(0.02)


async def test_held_pieces_leave_before_another_connection_ends(loop: whorl.EventLoop) -> None:
    async with AsyncExitStack() as stack:
        connection, other = await served(loop, stack, "tcp", 2)
        await writes_pieces(loop, connection)

        def write() -> None:
            connection.transport.write(b"one")
            other.transport.write_eof()
            seen.append(arrived(connection.peer))

        seen: list[bytes] = []
        await turn(loop, write)
        assert seen == [b"one"]


async def test_held_pieces_leave_before_a_program_starts(loop: whorl.EventLoop) -> None:
    class Protocol(asyncio.SubprocessProtocol):
        def __init__(self) -> None:
            self.exited = loop.create_future()

        def process_exited(self) -> None:
            self.exited.set_result(None)

    def spawn(*args: Any, **options: Any) -> Any:
        seen.append(arrived(connection.peer))
        return real(*args, **options)

    async def start() -> None:
        connection.transport.write(b"one")
        program, protocol = await loop.subprocess_exec(Protocol, sys.executable, "-c", "")
        await protocol.exited
        program.close()

    seen: list[bytes] = []
    async with AsyncExitStack() as stack:
        connection = (await served(loop, stack, "tcp", 1))[0]
        await writes_pieces(loop, connection)
        real, loop._host.spawn = loop._host.spawn, spawn  # type: ignore[method-assign]
        task = loop.create_task(start())
        await turn(loop, int, int)
        await task
        assert seen == [b"one"]


@pytest.mark.parametrize("collects", [False, True])
async def test_held_pieces_leave_before_a_failure_is_reported(loop: whorl.EventLoop, collects: bool) -> None:
    loop.configure(collect_writes=collects)
    async with AsyncExitStack() as stack:
        connection = (await served(loop, stack, "tcp", 1))[0]
        await writes_pieces(loop, connection)

        def fail() -> None:
            connection.transport.write(b"two")
            raise ValueError("on purpose")

        def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            seen.append(arrived(connection.peer))
            connection.transport.write(b"three")

        seen: list[bytes] = []
        loop.set_exception_handler(report)
        await turn(loop, fail, int)
        assert (seen, arrived(connection.peer)) == ([b"two"], b"three")


@pytest.mark.parametrize("collects", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_held_pieces_leave_if_an_exit_leaves_the_loop(
    loop: whorl.EventLoop, collects: bool, error: type[BaseException]
) -> None:
    async def begin() -> Connection:
        connection = (await served(loop, stack, "tcp", 1))[0]
        await writes_pieces(loop, connection)
        return connection

    def leave() -> None:
        transport.write(b" two")
        raise error

    loop.configure(collect_writes=collects)
    stack = AsyncExitStack()
    transport, peer = loop.run_until_complete(begin())
    for callback in (lambda: transport.write(b"one"), leave, int, int):
        loop.call_soon(callback)
    with pytest.raises(error):
        loop.run_forever()
    assert arrived(peer) == b"one two"
    loop.run_until_complete(stack.aclose())


@pytest.mark.parametrize("collects", [False, True])
def test_held_pieces_leave_if_the_loop_stops(loop: whorl.EventLoop, collects: bool) -> None:
    async def begin() -> Connection:
        connection = (await served(loop, stack, "tcp", 1))[0]
        await writes_pieces(loop, connection)
        return connection

    def last() -> None:
        loop.stop()
        transport.write(b"one")

    loop.configure(collect_writes=collects)
    stack = AsyncExitStack()
    transport, peer = loop.run_until_complete(begin())
    loop.call_soon(last)
    loop.run_forever()
    assert arrived(peer) == b"one"
    loop.run_until_complete(stack.aclose())


async def test_pieces_leave_in_debug_mode(kernel: NotingKernel, loop: whorl.EventLoop) -> None:
    async with AsyncExitStack() as stack:
        connection = (await served(loop, stack, "tcp", 1))[0]
        await writes_pieces(loop, connection)
        loop.set_debug(True)
        await asyncio.sleep(0)
        kernel.taken()
        await turn(loop, lambda: [connection.transport.write(data) for data in (b"one", b"two")])
        assert arrived(connection.peer) == b"onetwo"
        assert kernel.taken() == ["more", "more", "push"]
        loop.set_debug(False)


async def test_pieces_leave_while_the_loop_is_recorded(
    kernel: NotingKernel, loop: whorl.EventLoop, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        connection = (await served(loop, stack, "tcp", 1))[0]
        await writes_pieces(loop, connection)
        inspecting = inspector.start(recording=tmp_path / "recording")
        try:
            await asyncio.sleep(0)
            kernel.taken()
            await turn(loop, lambda: [connection.transport.write(data) for data in (b"one", b"two")], int)
            assert arrived(connection.peer) == b"onetwo"
            assert kernel.taken() == ["more", "more", "push"]
        finally:
            inspecting.stop()


# Counting.


async def test_a_push_within_a_callback_changes_no_expectation(
    kernel: NotingKernel, loop: whorl.EventLoop
) -> None:
    async with AsyncExitStack() as stack:
        connection = (await served(loop, stack, "tcp", 1))[0]
        sock = connection.transport.get_extra_info("socket")

        def write() -> None:
            connection.transport.write(b"head")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.transport.write(b"body")

        for expected in (["send", "more", "push"], ["more", "push", "send"], ["more", "push", "send"]):
            kernel.taken()
            await turn(loop, write)
            assert arrived(connection.peer) == b"headbody"
            assert kernel.taken() == expected


async def test_a_callback_that_fails_ends_its_count(kernel: NotingKernel, loop: whorl.EventLoop) -> None:
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, "tcp", 1))[0]

        def fail() -> None:
            transport.write(b"one")
            raise ValueError("on purpose")

        loop.set_exception_handler(lambda loop, context: transport.write(b"two"))
        for _ in range(3):
            await turn(loop, fail, lambda: transport.write(b"three"))
            assert arrived(peer) == b"onetwothree"
        assert kernel.taken() == ["send"] * 9


async def test_the_only_callback_of_a_turn_counts_apart_from_those_of_the_next_one(
    kernel: NotingKernel, loop: whorl.EventLoop
) -> None:
    class Answering(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            connection.transport.write(b"head")
            loop.call_soon(write_body)

    def write_body() -> None:
        connection.transport.write(b"body")
        rounds.append(None)
        if len(rounds) < 4:
            connection.peer.send(b"?")
        else:
            done.set_result(None)

    async with AsyncExitStack() as stack:
        connection = (await served(loop, stack, "tcp", 1, Answering))[0]
        rounds: list[None] = []
        done = loop.create_future()
        connection.peer.send(b"?")
        await done
        assert await receive(connection.peer, 32) == b"headbody" * 4
        assert kernel.taken() == ["send"] * 8


@pytest.mark.parametrize("last", ["send", "many"])
async def test_a_long_body_takes_the_head_along(
    kernel: NotingKernel, loop: whorl.EventLoop, last: str
) -> None:
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, "tcp", 1))[0]

        def answer() -> None:
            transport.write(b"head")
            if last == "send":
                transport.write(bytes(40_000))
            else:
                transport.writelines([bytes(20_000)] * 2)

        for _ in range(2):
            kernel.taken()
            await turn(loop, answer)
            assert await receive(peer, 40_004) == b"head" + bytes(40_000)
        assert kernel.taken() == ["more", last]


@pytest.mark.parametrize("who", ["nobody", "thread"])
def test_writes_outside_of_callbacks_count_for_nothing(
    kernel: NotingKernel, loop: whorl.EventLoop, who: str
) -> None:
    async def begin() -> Connection:
        return (await served(loop, stack, "tcp", 1))[0]

    stack = AsyncExitStack()
    transport, peer = loop.run_until_complete(begin())
    if who == "thread":
        thread = threading.Thread(target=transport.write, args=(b"one",))
        thread.start()
        thread.join()
    else:
        transport.write(b"one")
    kernel.taken()
    loop.run_until_complete(turn(loop, lambda: transport.write(b"two")))
    assert kernel.taken() == ["send"]
    assert arrived(peer) == b"onetwo"
    loop.run_until_complete(stack.aclose())


# Writes that are not held.


def test_outside_of_callbacks_nothing_is_held(loop: whorl.EventLoop) -> None:
    async def begin() -> Connection:
        connection = (await served(loop, stack, "tcp", 1))[0]
        await writes_pieces(loop, connection)
        return connection

    stack = AsyncExitStack()
    transport, peer = loop.run_until_complete(begin())
    transport.write(b"one")
    assert arrived(peer) == b"one"
    loop.run_until_complete(stack.aclose())


def test_between_two_steps_of_a_driver_nothing_is_held() -> None:
    async def begin(loop: whorl.EventLoop, stack: AsyncExitStack) -> Connection:
        connection = (await served(loop, stack, "tcp", 1))[0]
        await writes_pieces(loop, connection)
        return connection

    loop = whorl.EventLoop()
    stack = AsyncExitStack()
    transport, peer = loop.run_until_complete(begin(loop, stack))
    driver = whorl.Driver(loop)
    driver.step()
    transport.write(b"one")
    assert arrived(peer) == b"one"
    driver.close()
    loop.run_until_complete(stack.aclose())
    loop.close()


async def test_writes_of_another_thread_are_not_held(loop: whorl.EventLoop) -> None:
    async with AsyncExitStack() as stack:
        connection = (await served(loop, stack, "tcp", 1))[0]
        await writes_pieces(loop, connection)
        transport, peer = connection

        def write() -> None:
            thread = threading.Thread(target=transport.write, args=[b"one"])
            thread.start()
            thread.join()
            seen.append(arrived(peer))

        seen: list[bytes] = []
        await turn(loop, write, int, int)
        assert seen == [b"one"]


# A loop that collects.


@pytest.mark.usefixtures("collecting")
async def test_writes_of_a_turn_leave_when_more_connections_are_held_than_callbacks_wait(
    kernel: NotingKernel, loop: whorl.EventLoop
) -> None:
    async with AsyncExitStack() as stack:
        connections = await served(loop, stack, "tcp", 7)
        kernel.taken()

        def write(number: int) -> None:
            seen.append(kernel.calls.count("push"))
            connections[number].transport.write(b"%d" % number)

        seen: list[int] = []
        await turn(loop, *(lambda n=n: write(n) for n in range(7)))  # type: ignore[misc]
        # Seven callbacks and a step of this task: 5 are held, 3 wait; then 2 are held, 1 waits.
        assert seen == [0, 0, 0, 0, 0, 5, 5]
        assert kernel.taken() == ["more"] * 5 + ["push"] * 5 + ["more"] * 2 + ["push"] * 2
        assert [arrived(peer) for _, peer in connections] == [b"%d" % n for n in range(7)]


@pytest.mark.usefixtures("collecting")
async def test_writes_of_a_turn_leave_in_the_order_of_the_first_ones(
    kernel: NotingKernel, loop: whorl.EventLoop
) -> None:
    async with AsyncExitStack() as stack:
        connections = await served(loop, stack, "tcp", 3)
        order: list[int] = []
        push = kernel.push
        fds = {connection.transport.fileno(): number for number, connection in enumerate(connections)}
        kernel.push = lambda fd: order.append(fds[fd]) or push(fd)  # type: ignore[assignment, func-returns-value, method-assign]
        numbers = [2, 0, 2, 1]
        await turn(loop, *(lambda n=n: connections[n].transport.write(b"x") for n in numbers), int, int)  # type: ignore[misc]
        assert order == [2, 0, 1]


@pytest.mark.usefixtures("collecting")
def test_write_of_the_only_callback_of_a_turn_leaves_at_once(
    kernel: NotingKernel, loop: whorl.EventLoop
) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            transport, peer = (await served(loop, stack, "tcp", 1))[0]
            done = loop.create_future()

            def write() -> None:
                transport.write(b"one")
                seen.append(arrived(peer))
                done.set_result(None)

            loop.call_later(0, write)  # so that no step of a task waits behind it
            await done

    seen: list[bytes] = []
    loop.run_until_complete(main())
    assert seen == [b"one"]


@pytest.mark.usefixtures("collecting")
@pytest.mark.parametrize("later", [LONGEST_HELD_TICKS + 1, -1])
async def test_a_turn_that_takes_its_time_pushes_meanwhile(
    kernel: NotingKernel, loop: whorl.EventLoop, later: int
) -> None:
    async with AsyncExitStack() as stack:
        connections = await served(loop, stack, "tcp", 3)

        def write(number: int, later: int) -> None:
            seen.append(kernel.calls.count("push"))
            connections[number].transport.write(b"x")
            kernel.clock += later

        seen: list[int] = []
        await turn(loop, lambda: write(0, 0), lambda: write(1, later), lambda: write(2, 0))
        assert seen == [0, 0, 2]


@pytest.mark.usefixtures("collecting")
async def test_a_pipe_that_acts_lets_all_of_a_turn_leave_before(loop: whorl.EventLoop) -> None:
    async with AsyncExitStack() as stack:
        connections = await served(loop, stack, "tcp", 2)
        call = await act_by_pipe(loop)

        def act() -> None:
            call()
            seen.extend(arrived(peer) for _, peer in connections)

        seen: list[bytes] = []
        writes = [lambda t=t: t.write(b"x") for t, _ in connections]  # type: ignore[misc]
        await turn(loop, *writes, act)
        assert seen == [b"x", b"x"]
        await asyncio.sleep(0)


async def test_collecting_can_be_ended(loop: whorl.EventLoop) -> None:
    async with AsyncExitStack() as stack:
        transport, peer = (await served(loop, stack, "tcp", 1))[0]
        for collects in (True, "turn", False):
            loop.configure(collect_writes=collects)  # type: ignore[arg-type]
            loop.configure()
            seen: list[bytes] = []
            await turn(loop, lambda: transport.write(b"one"), lambda s=seen: s.append(arrived(peer)), int)  # type: ignore[misc]
            assert (seen[0], arrived(peer)) == ((b"", b"one") if collects else (b"one", b""))
            await turn(loop, int)


@pytest.mark.parametrize("collects", ["callback", 2, None, "", b"turn", []])
def test_configure_refuses_invalid_values_of_collect_writes(loop: whorl.EventLoop, collects: Any) -> None:
    with pytest.raises(ValueError, match="collect_writes is True, False or 'turn'"):
        loop.configure(collect_writes=collects)


# The loop for servers.


def test_the_server_loop_collects() -> None:
    for factory, collects in ((whorl.server_loop, True), (whorl.new_event_loop, False)):
        loop = factory()
        assert isinstance(loop, whorl.EventLoop)
        assert loop._held.collects is collects
        loop.close()


def test_run_takes_a_factory_of_loops() -> None:
    async def main() -> bool:
        loop: Any = asyncio.get_running_loop()
        return bool(loop._held.collects)

    assert whorl.run(main(), loop_factory=whorl.server_loop)
    with whorl.Runner(loop_factory=whorl.server_loop) as runner:
        assert runner.run(main())
    never = main()
    with pytest.raises(TypeError, match="tasks: options are for loops that loop_factory does not make"):
        whorl.run(never, loop_factory=whorl.server_loop, tasks="compiled")
    never.close()
