"""HTTP services that answer GET /NUMBER with the number: by a framework, by a server, by a parser alone."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any, cast

Message = dict[str, Any]
PACKAGES = {  # what must be installed for each
    "uvicorn": ("uvicorn", "httptools"),
    "fastapi": ("fastapi", "uvicorn", "httptools"),
    "hypercorn": ("hypercorn",),
    "aiohttp": ("aiohttp",),
    "httptools": ("httptools",),
}


async def serve_aiohttp(listener: socket.socket) -> object:
    """Return an application of aiohttp, with a route."""
    from aiohttp import web

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=request.match_info["number"])

    application = web.Application()
    application.router.add_get("/{number}", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    return runner


async def serve_uvicorn(listener: socket.socket) -> object:
    """Return an ASGI application under uvicorn with httptools."""
    return _under_uvicorn(_application, listener)


async def serve_fastapi(listener: socket.socket) -> object:
    """Return an application of FastAPI under uvicorn with httptools."""
    from fastapi import FastAPI
    from fastapi.responses import PlainTextResponse

    application = FastAPI()

    @application.get("/{number}", response_class=PlainTextResponse)
    async def answer(number: str) -> str:
        return number

    return _under_uvicorn(application, listener)


async def serve_hypercorn(listener: socket.socket) -> object:
    """Return an ASGI application under Hypercorn."""
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    config = Config()
    config.bind = [f"fd://{listener.fileno()}"]
    config.loglevel = "WARNING"
    return asyncio.create_task(serve(cast(Any, _application), config, shutdown_trigger=asyncio.Event().wait))


def _under_uvicorn(application: Any, listener: socket.socket) -> object:
    import uvicorn

    config = uvicorn.Config(
        application, http="httptools", ws="none", lifespan="off", log_level="warning", access_log=False
    )
    return asyncio.create_task(uvicorn.Server(config).serve([listener]))


async def _application(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    body = scope["path"][1:].encode()
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Service(asyncio.Protocol):
    """A protocol with httptools' parser and nothing around it."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        import httptools

        self.transport = cast(asyncio.Transport, transport)
        self.parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.number = url[1:]

    def on_message_complete(self) -> None:
        self.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b"
            % (len(self.number), self.number)
        )


async def serve_httptools(listener: socket.socket) -> object:
    """Return a server whose protocol parses requests by httptools; without it, raise ImportError."""
    import httptools  # noqa: F401  a service that cannot answer does not begin

    return await asyncio.get_running_loop().create_server(Service, sock=listener)
