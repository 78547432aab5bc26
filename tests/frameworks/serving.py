"""A server in this process or in a child, for modules with `start(sock, tls)`.

As a program, `python -m tests.frameworks.serving MODULE` serves until SIGTERM. It says its address,
and in the end what is left: each in one line of JSON.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import whorl
from build_tools.sources import ROOT
from tests.core.conftest import open_descriptors


@asynccontextmanager
async def serving(
    module: str, kind: str = "tcp", path: str = "", tls: ssl.SSLContext | None = None
) -> AsyncIterator[Any]:
    """Yield the address of a server on the running loop."""
    sock = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET)
    sock.bind(path if kind == "unix" else ("127.0.0.1", 0))
    address = sock.getsockname()
    stop = await importlib.import_module(module).start(sock, tls)
    try:
        yield address
    finally:
        await stop()


@asynccontextmanager
async def serving_in_child(module: str) -> AsyncIterator[Any]:
    """Yield the address of a server in a child process, which must leave nothing behind."""
    child = subprocess.Popen(
        [sys.executable, "-W", "error::ResourceWarning", "-m", "tests.frameworks.serving", module],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    try:
        line = await asyncio.to_thread(child.stdout.readline)
        yield tuple(json.loads(line))
        child.send_signal(signal.SIGTERM)
        out, err = await asyncio.to_thread(child.communicate)
        assert child.returncode == 0, err
        assert json.loads(out) == {"reported": [], "tasks": 0, "transports": 0, "descriptors": []}, err
        assert "Exception ignored" not in err
    finally:
        child.kill()
        child.communicate()


async def nothing_is_left(loop: whorl.EventLoop) -> None:
    """Check that neither transports nor tasks survived, once the timers of what ended are over."""
    await asyncio.sleep(600)
    gc.collect()
    assert len(loop._transports) == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert loop.metrics().timers == 0


async def serve_until_terminated(module: str) -> dict[str, Any]:
    """Serve until SIGTERM; return the state that is left."""
    loop: Any = asyncio.get_running_loop()
    reported: list[str] = []
    loop.set_exception_handler(lambda loop, context: reported.append(repr(context)))
    terminated = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, terminated.set)
    before = open_descriptors()
    async with serving(module) as address:
        print(json.dumps(address), flush=True)
        await terminated.wait()
    for _ in range(5):
        await asyncio.sleep(0)
    gc.collect()
    after = open_descriptors()
    return {
        "reported": reported,
        "tasks": len(asyncio.all_tasks()) - 1,
        "transports": len(loop._transports),
        "descriptors": [what for fd, what in after.items() if before.get(fd) != what],
    }


if __name__ == "__main__":
    print(json.dumps(whorl.run(serve_until_terminated(sys.argv[1]))))
