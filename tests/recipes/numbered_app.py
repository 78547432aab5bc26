"""An ASGI application that notes the number of each request when it begins it, and answers a little later."""

from __future__ import annotations

import asyncio
import os
from typing import Any

LOG = os.open(os.environ["NUMBERED_LOG"], os.O_WRONLY | os.O_APPEND)


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer `/NUMBER` with the number, the process and the module of the loop."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    number = scope["path"].lstrip("/")
    os.write(LOG, f"{number} {os.getpid()}\n".encode())
    await asyncio.sleep(0.01)
    body = f"{number} {os.getpid()} {type(asyncio.get_running_loop()).__module__}".encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
