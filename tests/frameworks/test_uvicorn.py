"""Uvicorn, with httptools, on the loop: in this process, and as a program."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import whorl
from build_tools.sources import ROOT
from tests.aio.sockets_for_tests import JumpingClock, digest, noise, turns
from tests.aio.tls_contexts import CERTIFICATE, client_context
from tests.frameworks.asgi_app import app
from tests.frameworks.http_traffic import Address, Client, traffic
from tests.frameworks.serving import nothing_is_left

uvicorn = pytest.importorskip("uvicorn", reason="uvicorn is not installed")
pytest.importorskip("httptools", reason="httptools is not installed")

# "module:attribute" as the name of a loop came with this version.
CUSTOM_LOOPS = tuple(map(int, uvicorn.__version__.split(".")[:2])) >= (0, 36)


@asynccontextmanager
async def serving(kind: str, folder: Path, **options: Any) -> AsyncIterator[tuple[Any, Address]]:
    """Yield a Uvicorn server on the running loop."""
    config = uvicorn.Config(app, http="httptools", log_config=None, access_log=False, **options)
    server = uvicorn.Server(config)
    address: Address
    if kind == "unix":
        address = str(folder / "socket")
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(address)
    else:
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        address = sock.getsockname()
    serving = asyncio.ensure_future(server.serve(sockets=[sock]))
    while not server.started:
        await turns(1)
    try:
        yield server, address
    finally:
        server.should_exit = True
        await serving


async def take_census(present: set[Any], seen: dict[int, weakref.ref[Any]]) -> None:
    """Note the present connections in each turn."""
    while True:
        seen.update((id(item), weakref.ref(item)) for item in present)
        await asyncio.sleep(0)


class TestInThisProcess:
    """Tests on the running loop, in a virtual time in which sleeps take no time."""

    @pytest.fixture
    def kernel(self) -> JumpingClock:
        return JumpingClock()

    @pytest.mark.usefixtures("either")
    @pytest.mark.parametrize("kind", ["tcp", "unix"])
    async def test_every_reply_belongs_to_its_request(
        self, loop: whorl.EventLoop, kind: str, tmp_path: Path
    ) -> None:
        seen: dict[int, weakref.ref[Any]] = {}
        async with serving(kind, tmp_path) as (server, address):
            census = asyncio.ensure_future(take_census(server.server_state.connections, seen))
            await traffic(address)
            census.cancel()
            await asyncio.wait([census])
            del census  # The traceback of its end refers to everything below it.
        await nothing_is_left(loop)
        assert len(seen) > 10
        assert [reference for reference in seen.values() if reference() is not None] == []

    @pytest.mark.usefixtures("either")
    async def test_tls(self, loop: whorl.EventLoop, tmp_path: Path) -> None:
        options = {"ssl_certfile": str(CERTIFICATE), "ssl_keyfile": str(CERTIFICATE)}
        async with serving("tcp", tmp_path, **options) as (_, address):
            await traffic(address, client_context())
        await nothing_is_left(loop)


@asynccontextmanager
async def program(
    *arguments: str, app: str = "tests.frameworks.asgi_app:app", **options: Any
) -> AsyncIterator[subprocess.Popen[str]]:
    """Yield Uvicorn as a program."""
    command = [sys.executable, "-m", "uvicorn", app, "--http", "httptools"]
    process = subprocess.Popen(
        [*command, "--no-access-log", *arguments], cwd=ROOT, stderr=subprocess.PIPE, text=True, **options
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


async def lines_until(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """Return the first line of a program's log that matches."""
    assert process.stderr is not None
    seen = []
    while line := await asyncio.to_thread(process.stderr.readline):
        seen.append(line)
        if found := re.search(pattern, line):
            return found
    raise AssertionError(f"no line matches {pattern!r}: {''.join(seen)}")


@pytest.mark.slow
@pytest.mark.skipif(not CUSTOM_LOOPS, reason="this Uvicorn knows no loops but its own")
@pytest.mark.parametrize("name", ["whorl:new_event_loop", "whorl:server_loop"])
async def test_uvicorn_as_a_program_with_the_loop_by_its_name(loop: whorl.EventLoop, name: str) -> None:
    async with program("--loop", name, "--port", "0") as process:
        found = await lines_until(process, r"running on http://127\.0\.0\.1:(\d+)")
        address = ("127.0.0.1", int(found[1]))
        client = await Client.connect(address)
        client.send("GET", "/loop")
        assert json.loads((await client.reply()).body).startswith("whorl.")
        await traffic(address)

        # It ends gracefully: what is being answered is answered wholly.
        client.send("GET", "/noise/5/3000000")
        await client.reader.readexactly(1)
        process.send_signal(signal.SIGTERM)
        rest = await client.reader.readuntil(b"\r\n\r\n")
        assert b"200 OK" in rest
        body = await client._chunks()
        assert digest(body) == digest(noise(3_000_000, 5))
        assert await client.reader.read() == b""
        await client.close()
        await lines_until(process, "Application shutdown complete")
        await lines_until(process, "Finished server process")
        assert await asyncio.to_thread(process.wait) in (0, -signal.SIGTERM)


@pytest.mark.slow
async def test_uvicorn_as_a_program_with_an_inherited_socket(loop: whorl.EventLoop) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = listener.getsockname()
        fd = listener.fileno()
        options = ["--loop", "whorl:new_event_loop"] if CUSTOM_LOOPS else []
        async with program("--fd", str(fd), *options, pass_fds=[fd]) as process:
            await lines_until(process, "running on socket")
            await traffic(address)
            process.send_signal(signal.SIGINT)
            await lines_until(process, "Finished server process")
            assert await asyncio.to_thread(process.wait) in (0, 130, -signal.SIGINT)


@pytest.mark.slow
def test_uvicorn_with_whorl_installed(tmp_path: Path) -> None:
    program = """
import sys, whorl
whorl.install()
import uvicorn
uvicorn.run("tests.frameworks.asgi_app:app", uds=sys.argv[1], loop="none", http="httptools")
"""
    if sys.version_info >= (3, 16):
        pytest.skip("there are no policies")
    path = str(tmp_path / "socket")
    environment = {**os.environ, "PYTHONWARNINGS": "ignore::DeprecationWarning"}
    process = subprocess.Popen(
        [sys.executable, "-c", program, path], cwd=ROOT, stderr=subprocess.PIPE, text=True, env=environment
    )

    async def visit() -> Any:
        await lines_until(process, "running on unix socket")
        client = await Client.connect(path)
        client.send("GET", "/loop")
        reply = await client.reply()
        await client.close()
        await traffic(path)
        return json.loads(reply.body)

    try:
        assert whorl.run(visit()).startswith("whorl.")
        process.terminate()
        assert process.wait(timeout=20) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.communicate()
