"""aiohttp, server and client, on the loop."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import whorl
from tests.aio.sockets_for_tests import JumpingClock, digest, noise, reset, turns
from tests.aio.tls_contexts import client_context, server_context
from tests.frameworks.http_traffic import BIG, Client, traffic
from tests.frameworks.serving import nothing_is_left, serving, serving_in_child

aiohttp = pytest.importorskip("aiohttp", reason="aiohttp is not installed")

APP = "tests.frameworks.aiohttp_app"


async def use_the_client(url: str, connector: Any, tls: Any = None) -> None:
    """Make many requests at once over few connections; every reply belongs to its request."""
    dice = random.Random(3)

    async def request(number: int) -> None:
        body = noise(dice.choice([0, 1, 1000, 100_000]), number)
        headers = {"X-Request": str(number)}
        async with session.post(f"{url}/echo", data=body, headers=headers, ssl=tls or True) as response:
            assert response.status == 200
            assert response.headers["X-Request"] == str(number), "this is the reply to another request"
            assert digest(await response.read()) == digest(body)

    async def give_up(number: int) -> None:
        async with session.get(f"{url}/noise/{number}/{BIG}", ssl=tls or True) as response:
            await response.content.readexactly(1000)

    async def be_cancelled(number: int) -> None:
        task = asyncio.ensure_future(give_up(number))
        await turns(dice.randrange(30))
        task.cancel()
        await asyncio.wait([task])

    async def read_slowly(number: int) -> None:
        async with session.get(f"{url}/noise/{number}/{BIG}", ssl=tls or True) as response:
            received = bytearray()
            async for piece in response.content.iter_chunked(10_000):
                received += piece
                await asyncio.sleep(0)
            assert digest(received) == digest(noise(BIG, number))

    async def talk(number: int) -> None:
        async with session.ws_connect(f"{url}/talk", ssl=tls or True) as websocket:
            for count in range(5):
                await websocket.send_str(f"{number} says {count}")
                assert await websocket.receive_str() == f"{number} says {count}"
                block = noise(dice.choice([1, 500, 100_000]), number)
                await websocket.send_bytes(block)
                assert await websocket.receive_bytes() == block

    async with aiohttp.ClientSession(connector=connector) as session:
        async with asyncio.TaskGroup() as group:
            for number in range(100):
                group.create_task(request(number))
            for number in range(10):
                group.create_task(give_up(number))
                group.create_task(be_cancelled(number))
                group.create_task(talk(number))
            for number in range(2):
                group.create_task(read_slowly(number))
        await request(1000)


class TestInThisProcess:
    """Server and client on the running loop, in a time in which sleeps take no time."""

    @pytest.fixture
    def kernel(self) -> JumpingClock:
        return JumpingClock()

    @pytest.mark.usefixtures("either")
    @pytest.mark.parametrize("kind", ["tcp", "unix"])
    async def test_every_reply_of_the_server_belongs_to_its_request(
        self, loop: whorl.EventLoop, kind: str, tmp_path: Path
    ) -> None:
        async with serving(APP, kind, str(tmp_path / "socket")) as address:
            await traffic(address)
        await nothing_is_left(loop)

    @pytest.mark.usefixtures("either")
    async def test_a_server_with_tls(self, loop: whorl.EventLoop) -> None:
        async with serving(APP, tls=server_context()) as address:
            await traffic(address, client_context())
        await nothing_is_left(loop)

    async def test_every_reply_that_the_client_gets_belongs_to_its_request(
        self, loop: whorl.EventLoop
    ) -> None:
        async with serving(APP) as (host, port):
            await use_the_client(f"http://{host}:{port}", aiohttp.TCPConnector(limit=20))
        await nothing_is_left(loop)

    async def test_a_client_over_a_unix_socket(self, loop: whorl.EventLoop, tmp_path: Path) -> None:
        path = str(tmp_path / "socket")
        async with serving(APP, "unix", path):
            await use_the_client("http://localhost", aiohttp.UnixConnector(path, limit=20))
        await nothing_is_left(loop)

    async def test_a_client_with_tls(self, loop: whorl.EventLoop) -> None:
        async with serving(APP, tls=server_context()) as (_, port):
            connector = aiohttp.TCPConnector(limit=20, resolver=Here())
            await use_the_client(f"https://localhost:{port}", connector, client_context())
        await nothing_is_left(loop)

    async def test_a_certificate_that_nobody_knows_is_refused_by_the_client(
        self, loop: whorl.EventLoop, reported: list[dict[str, Any]]
    ) -> None:
        async with serving(APP, tls=server_context()) as (_, port):
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(resolver=Here())) as session:
                with pytest.raises(aiohttp.ClientConnectorCertificateError):
                    await session.get(f"https://localhost:{port}/loop")
        await nothing_is_left(loop)
        assert isinstance(reported.pop()["exception"], ssl.SSLError)

    async def test_a_server_that_resets_is_an_error_of_the_client(self, loop: whorl.EventLoop) -> None:
        await be_reset(loop, b"")
        await be_reset(loop, b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome")
        await nothing_is_left(loop)


async def be_reset(loop: whorl.EventLoop, answer: bytes) -> None:
    """Make a request of a server that resets the connection after the beginning of its answer."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        host, port = listener.getsockname()

        async def refuse() -> None:
            connection, _ = await loop.sock_accept(listener)
            await loop.sock_recv(connection, 10)
            await loop.sock_sendall(connection, answer)
            reset(connection)

        refusing = loop.create_task(refuse())
        async with aiohttp.ClientSession() as session:
            with pytest.raises((aiohttp.ClientError, ConnectionError)):
                async with session.post(f"http://{host}:{port}/", data=b"x") as response:
                    await response.read()
        await refusing


class Here(aiohttp.abc.AbstractResolver):  # type: ignore[misc]
    """Resolves every name to this machine, without a thread."""

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_INET) -> list[dict[str, Any]]:
        known = {"hostname": host, "host": "127.0.0.1", "port": port}
        return [{**known, "family": socket.AF_INET, "proto": 0, "flags": 0}]

    async def close(self) -> None:
        pass


@pytest.mark.slow
async def test_a_server_in_another_process(loop: whorl.EventLoop) -> None:
    async with serving_in_child(APP) as address:
        client = await Client.connect(address)
        client.send("GET", "/loop")
        assert json.loads((await client.reply()).body).startswith("whorl.")
        await client.close()
        await traffic(address)
        await use_the_client(f"http://{address[0]}:{address[1]}", aiohttp.TCPConnector(limit=20))


@pytest.mark.parametrize("make_loop", [whorl.new_event_loop, whorl.EventLoop, whorl.server_loop])
def test_a_runner_with_a_loop_factory(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        async with serving(APP) as (host, port), aiohttp.ClientSession() as session:
            async with session.get(f"http://{host}:{port}/loop") as response:
                assert json.loads(await response.read()).startswith("whorl.")

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main())
        assert isinstance(runner.get_loop(), whorl.EventLoop)
    if sys.version_info >= (3, 12):
        asyncio.run(main(), loop_factory=make_loop)
    whorl.run(main())
