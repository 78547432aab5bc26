"""uvicorn and httpx: a server of ASGI, ended by SIGTERM, and a client with a pool."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import httpx
import uvicorn

from tests.sim.programs.bearing import attempts

REQUESTS = 8


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Greet the path."""
    if scope["type"] != "http":
        return
    await receive()
    await asyncio.sleep(0.01)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"hello " + scope["path"].encode()})


async def main(world: Any) -> list[str]:
    """Serve, send several requests, and end the server by a signal."""
    signal.signal(signal.SIGTERM, lambda number, frame: None)  # uvicorn raises the signal again at its end
    config = uvicorn.Config(app, host="10.0.0.1", port=8000, log_config=None, lifespan="off", ws="none")
    server = uvicorn.Server(config)
    serving = None
    async for attempt in attempts(SystemExit):
        with attempt:
            serving = asyncio.create_task(_serve(server))
            while not server.started:
                if serving.done():
                    serving.result()
                await asyncio.sleep(0.01)
    assert serving is not None
    answers: list[str] = []
    async with httpx.AsyncClient(timeout=600, trust_env=False, verify=False) as client:

        async def one(number: int) -> None:
            async for attempt in attempts(httpx.TransportError):
                with attempt:
                    response = await client.get(f"http://main:8000/{number}")
                    assert response.status_code == 200
                    answers.append(response.text)

        await asyncio.gather(*(one(number) for number in range(REQUESTS)))
    signal.raise_signal(signal.SIGTERM)
    await serving
    assert sorted(answers) == [f"hello /{number}" for number in range(REQUESTS)], answers
    return answers


async def _serve(server: uvicorn.Server) -> None:
    try:
        await server.serve()
    except SystemExit as error:  # it could not bind
        raise OSError("the server did not start") from error
    except KeyboardInterrupt:
        pass
