"""Servers of several processes: Uvicorn's workers and reloader, and Gunicorn with Uvicorn's workers."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import whorl
from build_tools.sources import ROOT
from tests.frameworks.http_traffic import Client, traffic

pytest.importorskip("uvicorn", reason="uvicorn is not installed")
pytest.importorskip("httptools", reason="httptools is not installed")

from tests.frameworks.test_uvicorn import CUSTOM_LOOPS, lines_until, program

pytestmark = pytest.mark.skipif(not CUSTOM_LOOPS, reason="this Uvicorn knows no loops but its own")

WHORL = ("--loop", "whorl:server_loop", "--port", "0")
ON_PORT = r"on http://127\.0\.0\.1:(\d+)"


async def connected(address: tuple[str, int]) -> Client:
    """Return a client of a server whose first process has bound its socket, before another one listens."""
    while True:
        try:
            return await Client.connect(address)
        except ConnectionRefusedError:
            await asyncio.sleep(0.01)


async def get(address: tuple[str, int], path: str) -> str:
    """Return the answer of a server."""
    client = await connected(address)
    client.send("GET", path)
    reply = await client.reply()
    await client.close()
    return str(json.loads(reply.body))


@pytest.mark.slow
async def test_uvicorns_workers_serve_on_whorl(loop: whorl.EventLoop) -> None:
    async with program(*WHORL, "--workers", "2") as process:
        found = await lines_until(process, ON_PORT)
        address = ("127.0.0.1", int(found[1]))
        for _ in range(2):
            await lines_until(process, "Application startup complete")
        assert (await get(address, "/loop")).startswith("whorl.")
        await traffic(address)
        process.send_signal(signal.SIGTERM)
        for _ in range(2):
            await lines_until(process, "Finished server process")
        assert await asyncio.to_thread(process.wait) in (0, -signal.SIGTERM)


@pytest.mark.slow
async def test_uvicorns_reloader_starts_the_server_anew(loop: whorl.EventLoop, tmp_path: Path) -> None:
    module = tmp_path / "reloaded_app.py"
    shutil.copy(ROOT / "tests/frameworks/asgi_app.py", module)
    folder = str(tmp_path)
    options = ("--reload", "--reload-dir", folder, "--app-dir", folder, "--reload-delay", "0.05")
    async with program(*WHORL, *options, app="reloaded_app:app") as process:
        found = await lines_until(process, ON_PORT)
        address = ("127.0.0.1", int(found[1]))
        await lines_until(process, "Application startup complete")
        assert (await get(address, "/loop")).startswith("whorl.")
        module.write_text(module.read_text().replace("type(asyncio.get_running_loop()).__module__", '"anew"'))
        await lines_until(process, "Reloading")
        await lines_until(process, "Application startup complete")
        assert await get(address, "/loop") == "anew"
        process.send_signal(signal.SIGINT)
        await lines_until(process, "Finished server process")
        assert await asyncio.to_thread(process.wait) in (0, 130, -signal.SIGINT)


@asynccontextmanager
async def gunicorn(*options: str) -> AsyncIterator[subprocess.Popen[str]]:
    """Yield Gunicorn as a program."""
    gunicorn_config = pytest.importorskip("gunicorn.config", reason="gunicorn is not installed")
    worker = "tests.frameworks.gunicorn_worker.WhorlWorker"
    command = [sys.executable, "-m", "gunicorn", "--worker-class", worker, "--bind", "127.0.0.1:0", *options]
    if hasattr(gunicorn_config, "ControlSocketDisable"):  # newer ones leave a socket in the home folder
        command.append("--no-control-socket")
    process = subprocess.Popen(
        [*command, "tests.frameworks.asgi_app:app"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.slow
async def test_gunicorn_with_uvicorns_workers_serves_on_whorl(loop: whorl.EventLoop) -> None:
    async with gunicorn("--workers", "2") as process:
        found = await lines_until(process, r"Listening at: http://127\.0\.0\.1:(\d+)")
        address = ("127.0.0.1", int(found[1]))
        workers = [await lines_until(process, r"\[(\d+)\].*Application startup complete") for _ in range(2)]
        assert (await get(address, "/loop")).startswith("whorl.")
        await traffic(address)

        # A worker that was killed is replaced.
        killed = int(re.findall(r"\d+", workers[0][1])[0])
        subprocess.run(["kill", "-KILL", str(killed)], check=True)
        await lines_until(process, "Application startup complete")
        assert (await get(address, "/loop")).startswith("whorl.")

        process.send_signal(signal.SIGTERM)
        for _ in range(2):
            await lines_until(process, "Finished server process")
        assert await asyncio.to_thread(process.wait) == 0
