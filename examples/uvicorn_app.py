"""An ASGI application under uvicorn on Whorl: `python examples/uvicorn_app.py [PORT]`.

From the command line, with uvicorn 0.36 or newer:

    uvicorn --app-dir examples --loop whorl:new_event_loop uvicorn_app:application
"""

import contextlib
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn

import whorl

Message = dict[str, Any]


async def application(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """Answer every HTTP request with the same text."""
    if scope["type"] != "http":
        raise NotImplementedError(scope["type"])
    headers = [(b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"Hello from Whorl.\n"})


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    server = uvicorn.Server(uvicorn.Config(application, port=port, lifespan="off"))
    with contextlib.suppress(KeyboardInterrupt):
        whorl.run(server.serve())
