"""Litestar, served by uvicorn.

$ uvicorn --loop whorl:new_event_loop --port 8000 litestar_service:app
$ curl http://127.0.0.1:8000/
"""

# /// script
# dependencies = ["litestar", "uvicorn", "whorl-loop"]
# ///

import asyncio

from litestar import Litestar, get


@get("/")
async def hello() -> str:
    return f"Hello from {type(asyncio.get_running_loop()).__module__}"


app = Litestar([hello])
