"""A service with aiohttp.

$ python aiohttp_service.py
$ curl http://127.0.0.1:8000/
"""

# /// script
# dependencies = ["aiohttp", "whorl-loop"]
# ///

import asyncio

from aiohttp import web

import whorl


async def hello(request: web.Request) -> web.Response:
    return web.Response(text=f"Hello from {type(asyncio.get_running_loop()).__module__}")


app = web.Application()
app.router.add_get("/", hello)

if __name__ == "__main__":
    web.run_app(app, host="127.0.0.1", port=8000, loop=whorl.new_event_loop())
