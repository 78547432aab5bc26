"""websockets: a server that answers each message, and a client with keepalive."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import websockets
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from tests.sim.programs.bearing import attempts

MESSAGES = 10


async def answer(connection: ServerConnection) -> None:
    """Answer each message."""
    async for message in connection:
        await connection.send(f"{message!s}!")


async def main(world: Any) -> int:
    """Serve, and send messages; each answer is the right one."""
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
    server = None
    async for attempt in attempts():
        with attempt:
            server = await serve(answer, "10.0.0.1", 80, ping_interval=1, ping_timeout=60)
    assert server is not None
    done = 0
    async for attempt in attempts(websockets.WebSocketException):
        with attempt:
            async with connect("ws://main:80/", ping_interval=1, ping_timeout=60, proxy=None) as connection:
                while done < MESSAGES:
                    await connection.send(f"m{done}" * 50)
                    assert await connection.recv() == f"m{done}" * 50 + "!"
                    done += 1
                    await asyncio.sleep(0.3)
    server.close()
    await server.wait_closed()
    assert done == MESSAGES
    return done
