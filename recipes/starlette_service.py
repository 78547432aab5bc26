"""Starlette, served by Hypercorn.

$ python starlette_service.py
$ curl http://127.0.0.1:8000/
"""

# /// script
# dependencies = ["hypercorn", "starlette", "whorl-loop"]
# ///

import asyncio

from hypercorn.asyncio import serve
from hypercorn.config import Config
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import whorl


async def hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"Hello from {type(asyncio.get_running_loop()).__module__}")


app = Starlette(routes=[Route("/", hello)])

if __name__ == "__main__":
    config = Config()
    config.bind = ["127.0.0.1:8000"]
    whorl.run(serve(app, config))
