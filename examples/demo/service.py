"""The service: an ordinary aiohttp application, on the loop that the command line names.

usage: service.py whorl|asyncio|uvloop

Prints "READY PORT"; SIGTERM ends it.
"""

import asyncio
import signal
import sys
import zlib
from collections.abc import Callable
from typing import cast

import content
from aiohttp import web

LoopFactory = Callable[[], asyncio.AbstractEventLoop]

routes = web.RouteTableDef()


@routes.get("/echo/{number}")
async def echo(request: web.Request) -> web.Response:
    """Return a small reply."""
    return web.json_response({"number": int(request.match_info["number"]), "path": request.path})


@routes.get("/page/{number}")
async def page(request: web.Request) -> web.Response:
    """Return a larger reply."""
    return web.Response(body=content.page(int(request.match_info["number"])))


@routes.get("/wait/{number}")
async def wait(request: web.Request) -> web.Response:
    """Return a reply after another await."""
    await asyncio.sleep(content.WAIT_SECONDS)
    return web.json_response({"number": int(request.match_info["number"])})


@routes.post("/checksum/{number}")
async def checksum(request: web.Request) -> web.Response:
    """Return a reply that depends on the whole body of the request."""
    body = await request.read()
    return web.json_response(
        {"number": int(request.match_info["number"]), "bytes": len(body), "crc32": zlib.crc32(body)}
    )


@routes.get("/loop")
async def loop_metrics(request: web.Request) -> web.Response:
    """Return the loop's counters; null on a loop that does not count."""
    metrics = getattr(asyncio.get_running_loop(), "metrics", None)
    return web.json_response(metrics()._asdict() if metrics else None)


async def serve() -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    application = web.Application()
    application.add_routes(routes)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print("READY", runner.addresses[0][1], flush=True)
    await stopped.wait()
    await runner.cleanup()


def loop_factory(name: str) -> LoopFactory:
    if name == "whorl":
        import whorl

        return cast(LoopFactory, whorl.new_event_loop)
    if name == "uvloop":
        import uvloop

        return cast(LoopFactory, uvloop.new_event_loop)
    return asyncio.SelectorEventLoop


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory(sys.argv[1])) as runner:
        runner.run(serve())
