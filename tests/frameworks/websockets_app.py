"""A WebSocket server that sends everything back, or as much as it is asked for."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tests.aio.sockets_for_tests import noise


async def talk(connection: ServerConnection) -> None:
    """Serve the paths /echo, /loop, and /noise/<seed>/<size>/<count>, the last with so many messages."""
    path = connection.request.path if connection.request is not None else ""
    try:
        if path == "/loop":
            await connection.send(type(asyncio.get_running_loop()).__module__)
        elif path == "/echo":
            async for message in connection:
                await connection.send(message)
        else:
            _, _, seed, size, count = path.split("/")
            for number in range(int(count)):
                await connection.send(noise(int(size), int(seed) + number))
    except ConnectionClosed:
        pass


async def start(sock: socket.socket, tls: ssl.SSLContext | None = None) -> Callable[[], Awaitable[None]]:
    """Serve on a bound socket; gives what ends that."""
    server = await serve(talk, sock=sock, ssl=tls)

    async def stop() -> None:
        server.close()
        await server.wait_closed()

    return stop
