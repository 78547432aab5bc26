"""An ASGI application on Granian, whose workers ask for uvloop.

$ whorl run --as-uvloop -m granian --interface asgi --loop uvloop --port 8000 granian_service:app
$ curl http://127.0.0.1:8000/
"""

# /// script
# dependencies = ["granian", "whorl-loop"]
# ///

import asyncio
from typing import Any


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return  # of "lifespan": it is optional
    body = f"Hello from {type(asyncio.get_running_loop()).__module__}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": body})
