"""Conversations over transports, written once against asyncio's API, for any loop and any world.

Each scenario is a coroutine that takes a `World`: how to listen and connect there, and the dice.
Every byte is accounted for by checksums, and every protocol insists on the order of its calls.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import random
import socket
import tempfile
from collections.abc import Awaitable, Callable
from typing import Any

#: How much one side says at most in a scenario, in bytes.
MUCH = 400_000

Factory = Callable[[], asyncio.BaseProtocol]


class World:
    """The world of a scenario: over TCP or UNIX sockets, with its own dice."""

    def __init__(self, kind: str, seed: int, folder: str | os.PathLike[str] = "") -> None:
        self.kind = kind
        self.random = random.Random(seed)
        self.path = os.path.join(folder, "socket")
        self.address: Any = None
        self.peers: list[Any] = []  # the server's protocols, in the order of their connections
        self._arrived = asyncio.Event()

    async def serve(self, factory: Factory) -> asyncio.Server:
        """Return a server; one at a time."""

        def arrive() -> asyncio.BaseProtocol:
            self.peers.append(factory())
            self._arrived.set()
            return self.peers[-1]

        loop = asyncio.get_running_loop()
        if self.kind == "unix":
            return await loop.create_unix_server(arrive, self.path)
        server = await loop.create_server(arrive, "127.0.0.1", 0)
        self.address = server.sockets[0].getsockname()
        return server

    async def connect(self, factory: Factory) -> tuple[Any, Any]:
        """Return a transport and a protocol, connected to the server."""
        loop = asyncio.get_running_loop()
        if self.kind == "unix":
            return await loop.create_unix_connection(factory, self.path)
        return await loop.create_connection(factory, *self.address)

    async def peer(self) -> Any:
        """Return the server's protocol of the first connection, once it is connected."""
        await self._arrived.wait()
        await self.peers[0].until(lambda: self.peers[0].transport is not None)
        return self.peers[0]

    async def serve_streams(
        self, talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], **options: Any
    ) -> asyncio.Server:
        """Return a server of streams."""
        if self.kind == "unix":
            return await asyncio.start_unix_server(talk, self.path, **options)
        server = await asyncio.start_server(talk, "127.0.0.1", 0, **options)
        self.address = server.sockets[0].getsockname()
        return server

    async def open_streams(self, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return streams that are connected to the server."""
        if self.kind == "unix":
            return await asyncio.open_unix_connection(self.path, **options)
        return await asyncio.open_connection(*self.address, **options)

    def size(self, largest: int) -> int:
        """Return a size: small ones are as likely as large ones."""
        return min(largest, self.random.randint(1, 2 << self.random.randrange(largest.bit_length())))

    def noise(self, size: int) -> bytes:
        """Return bytes without a pattern."""
        return self.random.randbytes(size)

    def pieces(self, data: bytes) -> list[bytes]:
        """Return the data, cut at random."""
        cut = []
        start = 0
        while start < len(data):
            end = start + self.size(70_000)
            cut.append(data[start:end])
            start = end
        return cut


def digest(data: bytes | bytearray) -> bytes:
    """Return a checksum."""
    return hashlib.blake2b(data, digest_size=16).digest()


class Conduct(asyncio.BaseProtocol):
    """Insists on the order of calls that asyncio promises, and lets others wait for them."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.is_lost = False
        self.error: BaseException | None = None
        self.has_eof = False
        self.is_paused = False  # whether writing is
        self._changed = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        assert self.transport is None, "connection_made was called twice"
        self.transport = transport
        self.changed()

    def connection_lost(self, error: BaseException | None) -> None:
        assert self.transport is not None, "connection_lost before connection_made"
        assert not self.is_lost, "connection_lost was called twice"
        self.is_lost = True
        self.error = error
        self.changed()

    def expect_data(self) -> None:
        assert self.transport is not None, "data before connection_made"
        assert not self.is_lost, "data after connection_lost"
        assert not self.has_eof, "data after eof_received"

    def eof_received(self) -> bool | None:
        self.expect_data()
        self.has_eof = True
        self.changed()
        return None

    def pause_writing(self) -> None:
        assert not self.is_paused, "pause_writing was called twice"
        self.is_paused = True

    def resume_writing(self) -> None:
        assert self.is_paused, "resume_writing without pause_writing"
        self.is_paused = False
        self.changed()

    def changed(self) -> None:
        """Let waiting tests look again."""
        self._changed.set()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until the condition holds."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def until_lost(self) -> None:
        """Wait for connection_lost."""
        await self.until(lambda: self.is_lost)


class Listener(Conduct, asyncio.Protocol):
    """A protocol that keeps its data."""

    def __init__(self) -> None:
        super().__init__()
        self.received = bytearray()

    def data_received(self, data: bytes) -> None:
        self.expect_data()
        assert type(data) is bytes
        assert data, "data_received without data"
        self.received += data
        self.changed()


class Echo(Listener):
    """A protocol that echoes."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(data)


class EchoInPieces(Listener):
    """A protocol that echoes in small pieces, several of them in each call."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        start = 0
        while start < len(data):
            end = start + self.world.size(len(data) - start)
            self.transport.write(data[start:end])
            start = end


class BufferedListener(Conduct, asyncio.BufferedProtocol):
    """A buffered protocol that keeps its data; its buffers have any size and are used again."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.received = bytearray()
        self.world = world
        self.buffer = bytearray()

    def get_buffer(self, sizehint: int) -> bytearray | memoryview:
        self.expect_data()
        size = self.world.size(100_000)
        if len(self.buffer) < size:
            self.buffer = bytearray(size)
        return memoryview(self.buffer)[:size]

    def buffer_updated(self, size: int) -> None:
        self.expect_data()
        assert size > 0
        self.received += self.buffer[:size]
        self.changed()


class BufferedEcho(BufferedListener):
    """A buffered protocol that echoes, out of the buffer it will use again."""

    def buffer_updated(self, size: int) -> None:
        super().buffer_updated(size)
        self.transport.write(memoryview(self.buffer)[:size])


async def say(world: World, protocol: Conduct, data: bytes) -> None:
    """Write in pieces, minding the watermarks."""
    for piece in world.pieces(data):
        await protocol.until(lambda: protocol.is_lost or not protocol.is_paused)
        if world.random.random() < 0.3:
            halves = [piece[: len(piece) // 2], bytearray(piece[len(piece) // 2 :])]
            protocol.transport.writelines(halves)
            halves[1][:] = bytes(len(halves[1]))  # what was written must have been copied
        else:
            protocol.transport.write(piece)
        if world.random.random() < 0.2:
            await asyncio.sleep(0)


async def end(server: asyncio.Server, *protocols: Conduct) -> None:
    """Close the server and wait until all is over."""
    server.close()
    for protocol in protocols:
        if protocol.transport is not None:
            protocol.transport.close()
            await protocol.until_lost()
    await server.wait_closed()


# The scenarios.


async def echo_of_a_protocol(world: World) -> None:
    """Check that a protocol's echo equals the sent data."""
    await _echo(world, Echo)


async def echo_of_a_buffered_protocol(world: World) -> None:
    """Check the same with buffers of the protocol's own on the server's side."""
    await _echo(world, lambda: BufferedEcho(world))


async def echo_in_pieces(world: World) -> None:
    """Send short messages back in small pieces, some of which are held back for a while."""
    server = await world.serve(lambda: EchoInPieces(world))
    _, client = await world.connect(Listener)
    said = bytearray()
    for _ in range(world.random.randint(1, 100)):
        message = world.noise(world.size(5000))
        said.extend(message)
        client.transport.write(message)
        await client.until(lambda: len(client.received) >= len(said))
    assert digest(client.received) == digest(said)
    echo = await world.peer()
    await end(server, client, echo)
    assert (client.error, echo.error) == (None, None)


async def _echo(world: World, factory: Callable[[], Any]) -> None:
    server = await world.serve(factory)
    _, client = await world.connect(Listener)
    data = world.noise(world.size(MUCH))
    await say(world, client, data)
    await client.until(lambda: len(client.received) >= len(data))
    echo = await world.peer()
    assert digest(client.received) == digest(data)
    assert digest(echo.received) == digest(data)
    await end(server, client, echo)
    assert (client.error, echo.error) == (None, None)


async def both_directions_at_once(world: World) -> None:
    """Talk from both sides without listening first."""
    server = await world.serve(random_listener(world))
    _, client = await world.connect(random_listener(world))
    peer = await world.peer()
    said, answered = world.noise(world.size(MUCH)), world.noise(world.size(MUCH))
    await asyncio.gather(say(world, client, said), say(world, peer, answered))
    await client.until(lambda: len(client.received) >= len(answered))
    await peer.until(lambda: len(peer.received) >= len(said))
    assert digest(client.received) == digest(answered)
    assert digest(peer.received) == digest(said)
    await end(server, client, peer)


def random_listener(world: World) -> Callable[[], Any]:
    """Return one of the two kinds of protocols."""
    return Listener if world.random.random() < 0.5 else lambda: BufferedListener(world)


async def echo_of_streams(world: World) -> None:
    """Echo by streams: read any, readexactly, readuntil, drain."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(world.size(100_000)):
            writer.write(data)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await world.serve_streams(talk)
    reader, writer = await world.open_streams(limit=64 + world.size(70_000))
    for _ in range(world.random.randint(1, 5)):
        data = world.noise(world.size(MUCH // 4))
        written = asyncio.ensure_future(_write_and_drain(world, writer, data))
        received = await reader.readexactly(len(data))
        await written
        assert digest(received) == digest(data)
    writer.write(b"a line\nand a rest")
    assert await reader.readline() == b"a line\n"
    writer.write_eof()
    assert await reader.read() == b"and a rest"
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()


async def _write_and_drain(world: World, writer: asyncio.StreamWriter, data: bytes) -> None:
    for piece in world.pieces(data):
        writer.write(piece)
        await writer.drain()


async def slow_reader_and_watermarks(world: World) -> None:
    """Obey the watermarks: the buffer then stays small, however slow the other side is."""
    server = await world.serve(Listener)
    _, client = await world.connect(Listener)
    client.transport.pause_reading()
    speaker = await world.peer()
    high = world.size(200_000)
    speaker.transport.set_write_buffer_limits(high=high)
    data = world.noise(3 * MUCH)
    most = 0

    async def speak_all() -> None:
        nonlocal most
        start = 0
        while start < len(data):
            await speaker.until(lambda: not speaker.is_paused)
            piece = data[start : start + world.size(50_000)]
            speaker.transport.write(piece)
            start += len(piece)
            waiting = speaker.transport.get_write_buffer_size()
            assert speaker.is_paused is (waiting > high)
            most = max(most, waiting)

    speaking = asyncio.ensure_future(speak_all())
    heard = len(client.received)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(client.received) == heard, "a paused reader was given data"
    while len(client.received) < len(data):
        client.transport.resume_reading()
        heard = len(client.received)
        await client.until(lambda heard=heard: len(client.received) > heard)
        if world.random.random() < 0.7:
            client.transport.pause_reading()
            heard = len(client.received)
            await asyncio.sleep(world.random.choice((0, 0.0005)))
            assert len(client.received) == heard, "a paused reader was given data"
    await speaking
    assert most <= high + 50_000
    assert digest(client.received) == digest(data)
    client.transport.resume_reading()
    await end(server, client, speaker)


async def half_close(world: World) -> None:
    """Finish writing on one side, which still gets its whole answer."""

    class Answer(Listener):
        def eof_received(self) -> bool:
            super().eof_received()
            self.transport.write(digest(self.received))
            self.transport.write(answer)
            if finish_by_eof:
                self.transport.write_eof()
            else:
                self.transport.close()
            return True

    answer = world.noise(world.size(MUCH))
    question = world.noise(world.size(MUCH))
    finish_by_eof = world.random.random() < 0.5
    server = await world.serve(Answer)
    _, client = await world.connect(Listener)
    await say(world, client, question)
    client.transport.write_eof()
    await client.until(lambda: client.has_eof)
    assert bytes(client.received[:16]) == digest(question)
    assert digest(client.received[16:]) == digest(answer)
    await client.until_lost()
    assert client.error is None
    await end(server, *world.peers)


async def writelines_of_all_kinds(world: World) -> None:
    """Write any kind of buffer, also empty ones, in one call."""
    server = await world.serve(Listener)
    _, client = await world.connect(Listener)
    expected = bytearray()
    for _ in range(10):
        kinds = [bytes, bytearray, memoryview]
        lines = []
        for _ in range(world.random.randint(0, 150)):
            piece = world.noise(world.random.choice((0, 1, 10, world.size(3000))))
            expected += piece
            lines.append(world.random.choice(kinds)(piece))
        client.transport.writelines(lines)
        for line in lines:
            if isinstance(line, bytearray):
                line.clear()  # it was copied, and is exported no more
        await client.until(lambda: not client.is_paused)
    client.transport.close()
    await client.until_lost()
    peer = await world.peer()
    await peer.until_lost()
    assert digest(peer.received) == digest(expected)
    await end(server)


async def abort_in_the_middle(world: World) -> None:
    """Abort in the middle: data that arrived before is right, and both sides are told once."""
    server = await world.serve(Listener)
    _, client = await world.connect(Listener)
    peer = await world.peer()
    data = world.noise(MUCH)
    for piece in world.pieces(data[: world.size(MUCH)]):
        client.transport.write(piece)
        if world.random.random() < 0.1:
            await asyncio.sleep(0)
    aborts, hears = (client, peer) if world.random.random() < 0.7 else (peer, client)
    aborts.transport.abort()
    aborts.transport.abort()
    aborts.transport.write(b"to nobody")
    await aborts.until_lost()
    await hears.until_lost()
    assert aborts.error is None
    assert hears.error is None or isinstance(hears.error, (ConnectionResetError, BrokenPipeError))
    assert data.startswith(bytes(peer.received))
    await end(server)


async def many_connections(world: World) -> None:
    """Check that bytes of one connection never reach another."""

    def echo() -> asyncio.BaseProtocol:
        return Echo() if world.random.random() < 0.5 else BufferedEcho(world)

    async def talk(data: bytes) -> None:
        _, client = await world.connect(random_listener(world))
        await say(world, client, data)
        await client.until(lambda: len(client.received) >= len(data))
        assert digest(client.received) == digest(data)
        client.transport.close()
        await client.until_lost()
        assert client.error is None

    server = await world.serve(echo)
    texts = [world.noise(world.size(20_000)) for _ in range(40)]
    await asyncio.gather(*map(talk, texts))
    await end(server, *world.peers)
    assert sorted(digest(echo.received) for echo in world.peers) == sorted(map(digest, texts))


async def another_protocol_in_mid_stream(world: World) -> None:
    """Call `set_protocol` between the kinds, from inside a callback, with bytes left over."""

    class Header(Listener):
        """A protocol that reads 4 bytes: how many of the rest are for the first successor."""

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if len(self.received) >= 4:
                second = successors[0]
                second.transport = self.transport
                second.received += self.received[4:]
                self.transport.set_protocol(second)
                second.pass_on()

    class Relay(BufferedListener):
        """A protocol that hands over to the next when it has its bytes."""

        def buffer_updated(self, size: int) -> None:
            super().buffer_updated(size)
            self.pass_on()

        def pass_on(self) -> None:
            if len(self.received) >= limit:
                third = successors[1]
                third.transport = self.transport
                third.received += self.received[limit:]
                del self.received[limit:]
                self.transport.set_protocol(third)

    successors: list[Any] = [Relay(world), Listener()]
    limit = world.size(MUCH // 2)
    data = world.noise(limit + world.size(MUCH // 2))
    server = await world.serve(Header)
    _, client = await world.connect(Listener)
    await say(world, client, b"abcd" + data)
    client.transport.close()
    await successors[1].until_lost()
    assert successors[1].has_eof
    assert digest(successors[0].received) == digest(data[:limit])
    assert digest(successors[1].received) == digest(data[limit:])
    await client.until_lost()
    await end(server)


async def close_with_data_still_queued(world: World) -> None:
    """Check that data written before `close` arrives, and that no call comes in between."""
    server = await world.serve(random_listener(world))
    _, client = await world.connect(Listener)
    data = world.noise(world.size(4 * MUCH))
    for piece in world.pieces(data):
        client.transport.write(piece)
    client.transport.close()
    assert client.transport.is_closing()
    assert not client.is_lost
    await client.until_lost()
    assert client.error is None
    peer = await world.peer()
    await peer.until_lost()
    assert digest(peer.received) == digest(data)
    await end(server)


async def connections_that_break(world: World) -> int:
    """Break connections: every protocol is told once, and data that arrived is right; return the resets."""
    data = world.noise(MUCH)
    protocols: list[Any] = []

    def listen() -> asyncio.BaseProtocol:
        protocols.append(random_listener(world)())
        return protocols[-1]

    async def talk() -> None:
        try:
            _, client = await world.connect(listen)
        except OSError:
            return
        await say(world, client, data[: world.size(MUCH)])
        client.transport.close()
        await client.until_lost()

    server = None
    while server is None:
        try:
            server = await world.serve(listen)
        except OSError:
            continue
    await asyncio.gather(*(talk() for _ in range(15)))
    for protocol in protocols:
        if protocol.transport is not None:
            await protocol.until_lost()
            assert protocol.error is None or isinstance(protocol.error, ConnectionError)
            assert protocol.transport.is_closing()
            assert data.startswith(bytes(protocol.received))
    await end(server)
    return sum(isinstance(protocol.error, ConnectionResetError) for protocol in protocols)


async def echo_of_sockets(world: World) -> None:
    """Call the `sock_` methods, over real sockets: recv, recv_into, sendall, connect, accept."""
    loop = asyncio.get_running_loop()
    family, address = (
        (socket.AF_UNIX, world.path) if world.kind == "unix" else (socket.AF_INET, ("127.0.0.1", 0))
    )

    async def answer(listener: socket.socket) -> None:
        connection, _ = await loop.sock_accept(listener)
        with connection:
            while data := await loop.sock_recv(connection, world.size(100_000)):
                await loop.sock_sendall(connection, data)

    with socket.socket(family) as listener, socket.socket(family) as client:
        for sock in (listener, client):
            sock.setblocking(False)
        listener.bind(address)
        listener.listen()
        answering = asyncio.ensure_future(answer(listener))
        await loop.sock_connect(client, listener.getsockname())
        for _ in range(world.random.randint(1, 5)):
            data = world.noise(world.size(MUCH // 4))
            sending = asyncio.ensure_future(loop.sock_sendall(client, data))
            received = bytearray(len(data))
            with memoryview(received) as rest:
                start = 0
                while start < len(data):
                    with rest[start:] as target:
                        start += await loop.sock_recv_into(client, target)
            await sending
            assert digest(received) == digest(data)
        client.shutdown(socket.SHUT_WR)
        assert await loop.sock_recv(client, 1) == b""
        await answering


async def files_among_writes(world: World) -> None:
    """Call `sendfile` between writes, by the kernel and piece by piece, for whole files and parts."""
    loop: Any = asyncio.get_running_loop()
    received = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(world.size(100_000)):
            received.extend(data)
        writer.close()
        await writer.wait_closed()
        ended.set()

    ended = asyncio.Event()
    server = await world.serve_streams(listen)
    _, writer = await world.open_streams()
    expected = bytearray()
    for _ in range(world.random.randint(1, 4)):
        before, content = world.noise(world.size(1000)), world.noise(world.size(MUCH))
        offset, count = world.size(1000) - 1, world.random.choice([None, world.size(MUCH)])
        writer.write(before)
        with tempfile.TemporaryFile() if world.random.random() < 0.5 else io.BytesIO() as file:
            file.write(content)
            file.seek(0)
            expected += before + content[offset : None if count is None else offset + count]
            await loop.sendfile(writer.transport, file, offset, count)
    writer.write(b"after")
    writer.close()
    await writer.wait_closed()
    await ended.wait()
    assert digest(received) == digest(expected + b"after")
    server.close()
    await server.wait_closed()


SCENARIOS: tuple[Callable[[World], Awaitable[None]], ...] = (
    echo_of_a_protocol,
    echo_of_a_buffered_protocol,
    echo_in_pieces,
    echo_of_streams,
    both_directions_at_once,
    slow_reader_and_watermarks,
    half_close,
    writelines_of_all_kinds,
    abort_in_the_middle,
    many_connections,
    another_protocol_in_mid_stream,
    close_with_data_still_queued,
)
