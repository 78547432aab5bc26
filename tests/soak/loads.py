"""The loads of a soak: each coroutine does one operation, again and again, and checks its result."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
from aiohttp import web

from tests.aio.tls_contexts import client_context, server_context

Operation = Callable[[], Awaitable[None]]
BODY = bytes(range(256)) * 16
FILES_AT_ONCE = 4


class Wrong(Exception):
    """An operation ended, with a result that is not right."""


def check(got: object, wanted: object) -> None:
    """Raise `Wrong` if a result is not the expected one."""
    if got != wanted:
        raise Wrong(f"{got!r:.80} instead of {wanted!r:.80}")


async def _respond(request: web.Request) -> web.StreamResponse:
    if request.headers.get("Upgrade", "").lower() == "websocket":
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_bytes(message.data)
        return socket
    return web.Response(body=await request.read())


@contextlib.asynccontextmanager
async def served(context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Run a service that returns what it gets; yield its address."""
    application = web.Application()
    application.router.add_route("*", "/", _respond)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield f"http{'s' if context else ''}://localhost:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def http() -> AsyncIterator[Operation]:
    """Post a body over a connection that stays open."""
    async with served() as address, aiohttp.ClientSession() as session:

        async def post() -> None:
            async with session.post(address, data=BODY) as response:
                check(await response.read(), BODY)

        yield post


@contextlib.asynccontextmanager
async def tls() -> AsyncIterator[Operation]:
    """Post a body over TLS, on a connection of its own."""
    connector = aiohttp.TCPConnector(ssl=client_context(), force_close=True)
    async with served(server_context()) as address, aiohttp.ClientSession(connector=connector) as session:

        async def post() -> None:
            async with session.post(address, data=BODY) as response:
                check(await response.read(), BODY)

        yield post


@contextlib.asynccontextmanager
async def websocket() -> AsyncIterator[Operation]:
    """Send a message over a WebSocket, and get it back."""
    async with served() as address, aiohttp.ClientSession() as session:
        async with session.ws_connect(address) as socket:

            async def talk() -> None:
                await socket.send_bytes(BODY)
                check(await socket.receive_bytes(), BODY)

            yield talk


class _Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        self._transport.sendto(data, address)


class _Answers(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.came: asyncio.Queue[bytes] = asyncio.Queue()

    def datagram_received(self, data: bytes, address: Any) -> None:
        self.came.put_nowait(data)


@contextlib.asynccontextmanager
async def udp() -> AsyncIterator[Operation]:
    """Send a datagram, and get it back; the loopback loses none while one is under way."""
    loop = asyncio.get_running_loop()
    server, _ = await loop.create_datagram_endpoint(_Echo, ("127.0.0.1", 0))
    address = server.get_extra_info("sockname")
    client, answers = await loop.create_datagram_endpoint(_Answers, remote_addr=address)

    async def send() -> None:
        client.sendto(BODY)
        check(await answers.came.get(), BODY)

    try:
        yield send
    finally:
        client.close()
        server.close()


@contextlib.asynccontextmanager
async def subprocess() -> AsyncIterator[Operation]:
    """Start a child, write to it, read from it, wait for it."""

    async def start() -> None:
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec("cat", stdin=pipe, stdout=pipe)
        output, _ = await child.communicate(BODY)
        check((output, child.returncode), (BODY, 0))

    yield start


@contextlib.asynccontextmanager
async def signals() -> AsyncIterator[Operation]:
    """Send this process a signal, and wait until the loop's handler was called."""
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, came.set)

    async def send() -> None:
        came.clear()
        os.kill(os.getpid(), signal.SIGUSR1)
        await came.wait()

    try:
        yield send
    finally:
        loop.remove_signal_handler(signal.SIGUSR1)


@contextlib.asynccontextmanager
async def names() -> AsyncIterator[Operation]:
    """Look up a name."""
    loop = asyncio.get_running_loop()

    async def look_up() -> None:
        found = await loop.getaddrinfo("localhost", 80)
        check(bool(found), True)

    yield look_up


@contextlib.asynccontextmanager
async def executor() -> AsyncIterator[Operation]:
    """Let threads read a file, a few at once."""

    def read() -> bytes:
        with open("/etc/hosts", "rb") as file:
            return file.read()

    async def read_all() -> None:
        contents = await asyncio.gather(*(asyncio.to_thread(read) for _ in range(FILES_AT_ONCE)))
        check(len(set(contents)), 1)

    yield read_all


@contextlib.asynccontextmanager
async def cancellations() -> AsyncIterator[Operation]:
    """Cancel a request at a moment that chance chooses; the next one, which is not cancelled, is right."""
    chance = random.Random(1)
    async with served() as address, aiohttp.ClientSession() as session:

        async def post() -> None:
            async with session.post(address, data=BODY) as response:
                check(await response.read(), BODY)

        async def post_and_cancel() -> None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(chance.random() * 0.002):
                    await post()
            await post()

        yield post_and_cancel


@contextlib.asynccontextmanager
async def restarts() -> AsyncIterator[Operation]:
    """Start a service, use it, end it."""

    async def restart() -> None:
        async with served() as address, aiohttp.ClientSession() as session:
            async with session.get(address) as response:
                check(response.status, 200)

    yield restart


@contextlib.asynccontextmanager
async def timers() -> AsyncIterator[Operation]:
    """Sleep for a millisecond; never shorter."""

    async def sleep() -> None:
        began = time.monotonic()
        await asyncio.sleep(0.001)
        check(time.monotonic() - began >= 0.001, True)

    yield sleep


LOADS = {
    "HTTP": http,
    "TLS, a connection each": tls,
    "WebSocket": websocket,
    "UDP": udp,
    "subprocess": subprocess,
    "signal": signals,
    "name": names,
    "executor": executor,
    "cancellation": cancellations,
    "restart of a service": restarts,
    "timer of 1 ms": timers,
}
