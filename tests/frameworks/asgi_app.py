"""The resources of `http_traffic`, as an ASGI application."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from tests.aio.sockets_for_tests import noise

Message = dict[str, Any]


async def app(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """Serve one ASGI scope."""
    if scope["type"] == "lifespan":
        await live(receive, send)
    elif scope["path"] == "/echo":
        await echo(scope, receive, send)
    elif scope["path"] == "/loop":
        await answer(send, json.dumps(type(asyncio.get_running_loop()).__module__).encode())
    else:
        await make_noise(scope, send)


async def live(receive: Any, send: Any) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def echo(scope: Message, receive: Any, send: Any) -> None:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        if not message["more_body"]:
            break
    headers = [(b"x-request", dict(scope["headers"])[b"x-request"])]
    await answer(send, bytes(body), headers)


async def answer(send: Any, body: bytes, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": 200, "headers": [length, *(headers or [])]})
    await send({"type": "http.response.body", "body": body})


async def make_noise(scope: Message, send: Any) -> None:
    """Send a long reply, in pieces."""
    _, _, seed, size = scope["path"].split("/")
    body = noise(int(size), int(seed))
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for position in range(0, len(body), 50_000):
        piece = body[position : position + 50_000]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body"})
