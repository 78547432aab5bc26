"""aiohttp: a server and a client, several requests at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
from aiohttp import web

from tests.sim.programs.bearing import attempts

REQUESTS = 10


async def handle(request: web.Request) -> web.Response:
    """Answer with what was sent."""
    body = await request.read()
    await asyncio.sleep(0.01)
    return web.Response(body=body + b"!")


async def main(world: Any, tls_server: Any = None, tls_client: Any = True) -> list[int]:
    """Serve, and send several requests; each answer is the right one."""
    app = web.Application()
    app.router.add_post("/{n}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    async for attempt in attempts():
        with attempt:
            await web.TCPSite(runner, "10.0.0.1", 8080, ssl_context=tls_server).start()
    scheme = "http" if tls_server is None else "https"
    done = []
    gate = asyncio.Semaphore(4)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as session:

        async def one(number: int) -> None:
            sent = b"x" * (number * 37)
            async for attempt in attempts(aiohttp.ClientError):
                with attempt:
                    async with session.post(
                        f"{scheme}://main:8080/{number}", data=sent, ssl=tls_client
                    ) as response:
                        assert await response.read() == sent + b"!"
                        done.append(number)

        async def limited(number: int) -> None:
            async with gate:
                await one(number)

        await asyncio.gather(*(limited(number) for number in range(REQUESTS)))
    await runner.cleanup()
    assert sorted(done) == list(range(REQUESTS)), done
    return done
