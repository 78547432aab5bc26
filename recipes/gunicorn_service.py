"""An ASGI application on Gunicorn and its own worker, which takes uvloop where it can.

$ whorl run --as-uvloop -m gunicorn --worker-class asgi --bind 127.0.0.1:8000 gunicorn_service:app
$ curl http://127.0.0.1:8000/
"""

# /// script
# dependencies = ["gunicorn", "whorl-loop"]
# ///

import asyncio
from typing import Any


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return  # of "lifespan": it is optional
    body = f"Hello from {type(asyncio.get_running_loop()).__module__}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": body})
