"""An aiohttp application on Whorl: `python examples/aiohttp_app.py [PORT]`, `curl 127.0.0.1:PORT/loop`."""

import asyncio
import sys

from aiohttp import web

import whorl


async def hello(request: web.Request) -> web.Response:
    return web.Response(text="Hello from Whorl.\n")


async def metrics(request: web.Request) -> web.Response:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, whorl.EventLoop)
    return web.json_response(loop.metrics()._asdict())


def make_application() -> web.Application:
    application = web.Application()
    application.add_routes([web.get("/", hello), web.get("/loop", metrics)])
    return application


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
    web.run_app(make_application(), host="127.0.0.1", port=port, loop=whorl.new_event_loop())
