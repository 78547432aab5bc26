"""Runs of small programs in simulated worlds: how many a minute, by the processor time of one core."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from whorl import sim

CERTIFICATE = Path(__file__).parent.parent / "tests" / "aio" / "certificates" / "localhost.pem"
clock = time.process_time  # bound before any world replaces it


async def empty() -> None:
    """Sleep once."""
    await asyncio.sleep(1)


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1000):
            writer.write(data)
    writer.close()


async def _talk(name: str, trips: int, size: int = 5, **options: Any) -> None:
    reader, writer = await asyncio.open_connection(name, 7, **options)
    for _ in range(trips):
        writer.write(bytes(size))
        await reader.readexactly(size)
    writer.close()
    await writer.wait_closed()


async def echo() -> None:
    """Make ten round trips over streams."""
    async with await asyncio.start_server(_echo, "10.0.0.1", 7):
        await _talk("10.0.0.1", 10)


async def four_hosts(world: sim.World) -> None:
    """Let three hosts make ten round trips each with a fourth."""
    server = world.host("server")
    await server.run(asyncio.start_server, _echo, server.address, 7)
    await asyncio.gather(*(world.host(name).run(_talk, "server", 10) for name in "abc"))


async def tls() -> None:
    """Make five round trips over each of four TLS connections."""
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(CERTIFICATE)
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ours.check_hostname, ours.verify_mode = False, ssl.CERT_NONE
    async with await asyncio.start_server(_echo, "10.0.0.1", 7, ssl=theirs):
        await asyncio.gather(*(_talk("10.0.0.1", 5, 500, ssl=ours) for _ in range(4)))


async def requests(number: int, at_once: int) -> None:
    """Serve and make requests with aiohttp."""
    import aiohttp
    from aiohttp import web

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    application = web.Application()
    application.router.add_post("/", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "10.0.0.1", 80).start()
    limit = asyncio.Semaphore(at_once)
    async with aiohttp.ClientSession() as session:

        async def ask() -> None:
            async with limit, session.post("http://10.0.0.1/", data=b"hello") as response:
                assert await response.read() == b"hello"

        await asyncio.gather(*(ask() for _ in range(number)))
    await runner.cleanup()


async def heartbeats(world: sim.World) -> None:
    """Let five hosts send each other a datagram every 50 ms, for ten seconds, as Raft does."""

    async def member(name: str) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, local_addr=("0.0.0.0", 9)
        )
        for _ in range(200):
            await asyncio.sleep(0.05)
            for other in names:
                if other != name:
                    transport.sendto(b"I am alive", (world.host(other).address, 9))
        transport.close()

    names = "abcde"
    await asyncio.gather(*(world.host(name).run(member, name) for name in names))


PROGRAMS: dict[str, Callable[..., Any]] = {
    "empty world, one sleep": empty,
    "echo, 10 round trips, streams": echo,
    "4 hosts, 3 clients x 10": four_hosts,
    "aiohttp, 1 request": partial(requests, 1, 1),
    "aiohttp, 20 requests, 4 at a time": partial(requests, 20, 4),
    "TLS, 4 connections x 5 echoes": tls,
    "5 hosts, heartbeats, 10 s": heartbeats,
}


def table(seconds: float) -> Iterator[str]:
    """Measure each program for so many seconds; yield a line for each."""
    yield f"{'program':36} {'runs a minute':>14}"
    for name, program in PROGRAMS.items():
        sim.run(program).check()
        began, runs = clock(), 0
        while clock() - began < seconds:
            sim.run(program, seed=runs).check()
            runs += 1
        yield f"{name:36} {runs / (clock() - began) * 60:14,.0f}"
