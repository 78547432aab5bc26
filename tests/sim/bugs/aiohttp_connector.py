"""aiohttp 3.14: a waiter for a connection that is woken and cancelled at once wakes nobody else."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import aiohttp
from aiohttp import web

REQUESTS = 6


async def main(world: Any) -> None:
    """Cancel some requests; all others are answered."""

    async def answer(request: web.Request) -> web.Response:
        await asyncio.sleep((1 + world.choose(4, "answer")) * 0.001)
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "10.0.0.1", 80).start()
    connector = aiohttp.TCPConnector(limit=1)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

        async def request() -> None:
            async with session.get("http://10.0.0.1/") as response:
                await response.read()

        async def impatient() -> None:
            with contextlib.suppress(asyncio.TimeoutError):
                async with asyncio.timeout((1 + world.choose(12, "patience")) * 0.001):
                    await request()

        async def patient() -> None:
            async with asyncio.timeout(60):
                await request()

        jobs = [patient if number % 2 else impatient for number in range(REQUESTS)]
        await asyncio.gather(*(job() for job in jobs))
    await runner.cleanup()
