"""Whorl's own transports, datagrams and sock_ methods: data comes in order and complete, or with an error.

Each program sends numbered data both ways and checks every byte that comes. An error of the network's may end
a connection early; nothing else may, and no data may be wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

from tests.sim.programs.bearing import attempts
from tests.sim.programs.contexts import for_client, for_server

BORNE = (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError)


def pattern(size: int, start: int = 0) -> bytes:
    """Return bytes that show their place."""
    return bytes((place * 31 + place // 251) & 0xFF for place in range(start, start + size))


WHOLE = pattern(400_000)


class Ends:
    """The server's side: what each connection received, and whether it ended without an error."""

    def __init__(self) -> None:
        self.open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send everything back, and the end."""
        self.open += 1
        place = 0
        try:
            while data := await reader.read(5000):
                assert data == WHOLE[place : place + len(data)], f"wrong bytes at {place}"
                place += len(data)
                writer.write(data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
        except BORNE:
            pass
        finally:
            self.open -= 1
            writer.close()
            with contextlib.suppress(*BORNE):
                await writer.wait_closed()


async def exchange(world: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size: int) -> None:
    """Send bytes in pieces of the seed's, and read them again."""

    async def send() -> None:
        place = 0
        while place < size:
            piece = min(size - place, 1 + world.choose(40_000, "piece"))
            writer.write(WHOLE[place : place + piece])
            place += piece
            await writer.drain()
            if world.choose(4, "pause") == 1:
                await asyncio.sleep(0.001)
        if writer.can_write_eof():
            writer.write_eof()

    sending = asyncio.create_task(send())
    try:
        place = 0
        while place < size:
            data = await reader.read(1 + world.choose(50_000, "read"))
            if not data:
                raise asyncio.IncompleteReadError(b"", size)
            assert data == WHOLE[place : place + len(data)], f"wrong bytes at {place}"
            place += len(data)
        await sending
        if writer.can_write_eof():
            assert await reader.read() == b"", "there was more than was sent"
    finally:
        sending.cancel()
        await asyncio.wait([sending])
        if not sending.cancelled():
            sending.exception()
        writer.close()
        with contextlib.suppress(*BORNE):
            await writer.wait_closed()


async def connections(world: Any, start: Callable[..., Any], connect: Callable[..., Any], size: int) -> None:
    """Serve, and exchange data over several connections at a time."""
    ends = Ends()
    server = None
    async for attempt in attempts():
        with attempt:
            server = await start(ends.serve)
    assert server is not None
    done = []

    async def one(number: int) -> None:
        async for attempt in attempts(*BORNE):
            with attempt:
                await exchange(world, *await connect(), size // (number + 1))
                done.append(number)

    await asyncio.gather(*(one(number) for number in range(3)))
    server.close()
    await world.until(lambda: not ends.open, 3000)
    await asyncio.sleep(40)
    assert sorted(done) == [0, 1, 2]


async def tcp(world: Any) -> None:
    """Exchange data between two hosts over TCP."""
    away = world.host("server")

    async def start(serve: Any) -> Any:
        return await away.run(asyncio.start_server, serve, "server", 7)

    async def connect() -> Any:
        return await asyncio.open_connection("server", 7)

    await connections(world, start, connect, 300_000)


async def tls(world: Any) -> None:
    """Exchange data over TLS."""

    async def start(serve: Any) -> Any:
        return await asyncio.start_server(serve, "10.0.0.1", 7, ssl=for_server(), ssl_handshake_timeout=500)

    async def connect() -> Any:
        return await asyncio.open_connection("10.0.0.1", 7, ssl=for_client(), ssl_handshake_timeout=500)

    await connections(world, start, connect, 60_000)


async def unix(world: Any) -> None:
    """Exchange data over a UNIX socket."""

    async def start(serve: Any) -> Any:
        return await asyncio.start_unix_server(serve, "/run/echo")

    async def connect() -> Any:
        return await asyncio.open_unix_connection("/run/echo")

    await connections(world, start, connect, 100_000)


async def sock_methods(world: Any) -> None:
    """Exchange data by the loop's sock_ methods."""
    loop = asyncio.get_running_loop()
    size = 50_000
    listener = None
    async for attempt in attempts():
        with attempt:
            listener = socket.socket()
            listener.setblocking(False)
            listener.bind(("10.0.0.1", 7))
            listener.listen(5)
    assert listener is not None

    async def answer(sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            while data := await loop.sock_recv(sock, 3000):
                await loop.sock_sendall(sock, data)

    answers = []

    async def accept() -> None:
        while True:
            with contextlib.suppress(OSError):
                sock, _ = await loop.sock_accept(listener)
                answers.append(asyncio.create_task(answer(sock)))

    accepting = asyncio.create_task(accept())
    complete = False
    async for attempt in attempts():
        with attempt, socket.socket() as sock:
            sock.setblocking(False)
            await loop.sock_connect(sock, ("main", 7))
            sending = asyncio.create_task(loop.sock_sendall(sock, WHOLE[:size]))
            try:
                place = 0
                buffer = bytearray(4000)
                while place < size:
                    count = await loop.sock_recv_into(sock, buffer)
                    if not count:
                        raise ConnectionResetError("the end came too early")
                    assert buffer[:count] == WHOLE[place : place + count]
                    place += count
                await sending
                complete = True
            finally:
                sending.cancel()
                await asyncio.wait([sending])
                if not sending.cancelled():
                    sending.exception()
    accepting.cancel()
    for task in [accepting, *answers]:
        task.cancel()
    await asyncio.wait([accepting, *answers])
    listener.close()
    assert complete


class Datagrams(asyncio.DatagramProtocol):
    """Keep what comes."""

    def __init__(self, answers: bool) -> None:
        self.answers = answers
        self.got: set[bytes] = set()
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        """Keep the transport."""
        self.transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        """Keep a datagram, and answer."""
        assert data == pattern(len(data)), "a datagram is wrong"
        self.got.add(data)
        if self.answers:
            self.transport.sendto(data, address)


async def udp(world: Any) -> None:
    """Send datagrams until each has been answered."""
    loop = asyncio.get_running_loop()
    server: Any = None
    client: Any = None
    async for attempt in attempts():
        with attempt:
            _, server = await loop.create_datagram_endpoint(lambda: Datagrams(True), ("10.0.0.1", 7))
    async for attempt in attempts():
        with attempt:
            _, client = await loop.create_datagram_endpoint(lambda: Datagrams(False), remote_addr=("main", 7))
    wanted = {pattern(size) for size in range(1, 3000, 300)}  # an empty one is not sent before 3.13
    for _ in range(100):
        for data in sorted(wanted - client.got):
            client.transport.sendto(data)
        await asyncio.sleep(0.05)
        if client.got == wanted:
            break
    assert client.got == wanted == server.got
    client.transport.close()
    server.transport.close()
    await asyncio.sleep(1)


ALL = (tcp, tls, unix, sock_methods, udp)
