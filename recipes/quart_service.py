"""Quart, served by its own Hypercorn.

$ python quart_service.py
$ curl http://127.0.0.1:8000/
"""

# /// script
# dependencies = ["quart", "whorl-loop"]
# ///

import asyncio

from quart import Quart

import whorl

app = Quart(__name__)


@app.get("/")
async def hello() -> str:
    return f"Hello from {type(asyncio.get_running_loop()).__module__}"


if __name__ == "__main__":
    whorl.run(app.run_task(port=8000))
