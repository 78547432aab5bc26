"""The resources of `http_traffic`, as an aiohttp application."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress

from aiohttp import WSMsgType, web

from tests.aio.sockets_for_tests import noise


async def echo(request: web.Request) -> web.Response:
    headers = {"X-Request": request.headers.get("X-Request", "")}
    body = b""
    with suppress(ConnectionError):  # A client may leave in the middle of a request.
        body = await request.read()
    return web.Response(body=body, headers=headers)


async def which_loop(request: web.Request) -> web.Response:
    return web.json_response(type(asyncio.get_running_loop()).__module__, dumps=json.dumps)


async def make_noise(request: web.Request) -> web.StreamResponse:
    """Return a long reply, in pieces; a client that leaves before its end is no error."""
    body = noise(int(request.match_info["size"]), int(request.match_info["seed"]))
    response = web.StreamResponse()
    with suppress(ConnectionError):
        await response.prepare(request)
        for position in range(0, len(body), 50_000):
            await response.write(body[position : position + 50_000])
        await response.write_eof()
    return response


async def talk(request: web.Request) -> web.WebSocketResponse:
    """Return a WebSocket that echoes."""
    websocket = web.WebSocketResponse()
    await websocket.prepare(request)
    async for message in websocket:
        if message.type == WSMsgType.TEXT:
            await websocket.send_str(message.data)
        else:
            await websocket.send_bytes(message.data)
    return websocket


async def start(sock: socket.socket, tls: ssl.SSLContext | None = None) -> Callable[[], Awaitable[None]]:
    """Serve on a bound socket; gives what ends that."""
    app = web.Application()
    app.add_routes(
        [
            web.post("/echo", echo),
            web.get("/loop", which_loop),
            web.get("/noise/{seed}/{size}", make_noise),
            web.get("/talk", talk),
        ]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.SockSite(runner, sock, ssl_context=tls).start()
    return runner.cleanup
