"""Sanic in one process, without uvloop.

$ python sanic_service.py
$ curl http://127.0.0.1:8000/
"""

# /// script
# dependencies = ["sanic", "whorl-loop"]
# ///

import asyncio

from sanic import HTTPResponse, Request, Sanic, text

import whorl

app = Sanic("hello")
app.config.USE_UVLOOP = False


@app.get("/")
async def hello(request: Request) -> HTTPResponse:
    return text(f"Hello from {type(asyncio.get_running_loop()).__module__}")


if __name__ == "__main__":
    whorl.install()
    app.run(host="127.0.0.1", port=8000, single_process=True)
