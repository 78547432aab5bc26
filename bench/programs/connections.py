"""Connections that are opened and closed, both ends in one process: by streams and by a Protocol.

A connection is done when both ends are closed. Else some loops open more than they accept, until the kernel
refuses.

The client closes first. A TCP connection would then stay in TIME_WAIT for a minute. When such connections
hold half of all ports, each `connect` has to search for a free one. So listening sockets have SO_LINGER
without time, and accepted sockets inherit it. The server's close, after the client's, resets the rest of the
connection in the kernel. The client has closed its descriptor by then and notices nothing. TLS goes without
this, as both ends talk until the end. A handshake takes so long that a measurement leaves few connections
behind, and each measurement has a port of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

from servers import CERTIFICATE, leave_no_time_wait

from programs.program import Operation, Program, check

BACKLOG = 2048
Start = Callable[..., Awaitable[asyncio.Server]]


@contextlib.asynccontextmanager
async def by_streams(kind: str, _: str) -> AsyncIterator[Operation]:
    ended = asyncio.Semaphore(0)  # ends of the server that are closed
    open_one: Any = asyncio.open_unix_connection if kind == "unix" else asyncio.open_connection

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        check(await reader.read(1), b"")
        writer.close()
        ended.release()

    async with serving(kind, asyncio.start_server, asyncio.start_unix_server, serve) as where:

        async def connect() -> None:
            _, writer = await open_one(**where)
            writer.close()
            await writer.wait_closed()
            await ended.acquire()

        yield connect


@contextlib.asynccontextmanager
async def by_protocol(kind: str, _: str) -> AsyncIterator[Operation]:
    ended = asyncio.Semaphore(0)
    loop = asyncio.get_running_loop()
    open_one: Any = loop.create_unix_connection if kind == "unix" else loop.create_connection

    class Accepted(asyncio.Protocol):
        def connection_lost(self, exc: Exception | None) -> None:
            ended.release()

    async with serving(kind, loop.create_server, loop.create_unix_server, Accepted) as where:

        async def connect() -> None:
            transport, protocol = await open_one(Opened, **where)
            protocol.lost = loop.create_future()
            transport.close()
            check(await protocol.lost, None)
            await ended.acquire()

        yield connect


class Opened(asyncio.Protocol):
    """The client's end of a connection."""

    lost: asyncio.Future[Exception | None]

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


@contextlib.asynccontextmanager
async def serving(kind: str, start: Start, start_unix: Start, serve: Any) -> AsyncIterator[dict[str, Any]]:
    """Serve connections of one kind: "number", "name", "unix" or "tls"; yield their address for clients."""
    async with contextlib.AsyncExitStack() as stack:
        if kind == "unix":
            path = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")) + "/socket"
            stack.callback((await start_unix(serve, path, backlog=BACKLOG)).close)
            yield {"path": path}
            return
        listeners = _listen(by_name=kind == "name")
        where: dict[str, Any] = {
            "host": "localhost" if kind == "name" else "127.0.0.1",
            "port": listeners[0].getsockname()[1],
        }
        options = {"backlog": BACKLOG}
        if kind == "tls":
            serving, asking = _contexts()
            options["ssl"] = serving
            where.update(ssl=asking, server_hostname="localhost")
        else:
            for listener in listeners:
                leave_no_time_wait(listener)
        for listener in listeners:
            stack.callback((await start(serve, sock=listener, **options)).close)
        yield where


def _listen(by_name: bool) -> list[socket.socket]:
    """Return listening sockets at one port: a name may stand for the address of IPv6 first."""
    listeners = [socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)]
    if by_name:
        with contextlib.suppress(OSError):
            address = "::1", listeners[0].getsockname()[1]
            listeners.append(socket.create_server(address, family=socket.AF_INET6, backlog=BACKLOG))
    return listeners


def _contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the TLS contexts of servers and of clients."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(CERTIFICATE)
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.load_verify_locations(CERTIFICATE)
    return serving, asking


_WAYS = (("streams", "streams", by_streams), ("protocol", "Protocol", by_protocol))
_KINDS = (
    ("number", "to 127.0.0.1", 200),
    ("name", "to `localhost`", 100),
    ("unix", "over UNIX", 200),
    ("tls", "over TLS", 20),
)
PROGRAMS = tuple(
    Program(
        f"program/connect/{way}/{kind}/{at_once}",
        f"A connection {where}, {way_title}, {'one' if at_once == 1 else at_once} at a time",
        partial(opened, kind),
        times // at_once,
        at_once,
    )
    for way, way_title, opened in _WAYS
    for kind, where, times in _KINDS
    for at_once in (1, 20)
)
