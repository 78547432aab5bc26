"""httpcore 1.0.9: requests that are cancelled while others wait take places of the pool with them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import httpcore

CONNECTIONS, REQUESTS = 2, 8
TIMEOUTS = {"connect": 2.0, "read": 2.0, "write": 2.0, "pool": 3.0}


async def main(world: Any) -> None:
    """Cancel requests; later ones still get a connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                await asyncio.sleep(0.0005 + world.choose(5, "answer") * 0.001)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "10.0.0.1", 80)
    async with httpcore.AsyncConnectionPool(max_connections=CONNECTIONS) as pool:

        async def request() -> None:
            await pool.request("GET", "http://10.0.0.1/", extensions={"timeout": TIMEOUTS})

        async def impatient() -> None:
            with contextlib.suppress(asyncio.TimeoutError, httpcore.PoolTimeout):
                async with asyncio.timeout((1 + world.choose(9, "patience")) * 0.001):
                    await request()

        await asyncio.gather(*(impatient() for _ in range(REQUESTS)))
        await asyncio.sleep(30)
        for _ in range(2):
            await asyncio.gather(*(request() for _ in range(CONNECTIONS)))
    server.close()
