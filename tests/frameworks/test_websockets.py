"""websockets, server and client, on the loop."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from typing import Any

import pytest

import whorl
from tests.aio.sockets_for_tests import JumpingClock, digest, noise, reset, turns
from tests.aio.tls_contexts import client_context, server_context
from tests.frameworks.serving import nothing_is_left, serving, serving_in_child

websockets = pytest.importorskip("websockets.asyncio.client", reason="websockets is not installed")

APP = "tests.frameworks.websockets_app"


async def converse(number: int, uri: str, **options: Any) -> None:
    """Check that every message that comes back is the sent one."""
    dice = random.Random(number)
    async with websockets.connect(f"{uri}/echo", **options) as connection:
        for count in range(8):
            text = f"{number} says {count}"
            block = noise(dice.choice([0, 1, 1000, 50_000]), number)
            await connection.send(text)
            await connection.send(block)
            assert await connection.recv() == text
            assert digest(await connection.recv()) == digest(block)
        await (await connection.ping())


async def greet(path: str) -> None:
    """Have a short conversation over a UNIX socket."""
    async with websockets.unix_connect(path, uri="ws://localhost/echo") as connection:
        await connection.send("hello")
        assert await connection.recv() == "hello"


async def leave_abruptly(number: int, uri: str, **options: Any) -> None:
    """Leave in the middle of a conversation."""
    connection = await websockets.connect(f"{uri}/noise/{number}/20000/50", **options)
    for _ in range(number % 4):
        await connection.recv()
    await turns(number)
    sock = connection.transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.transport.abort()
    await connection.wait_closed()


async def leave_in_the_handshake(number: int, address: Any) -> None:
    """Leave before the conversation has begun."""
    loop = asyncio.get_running_loop()
    sock = socket.socket()
    sock.setblocking(False)
    await loop.sock_connect(sock, address)
    await loop.sock_sendall(
        sock, b"GET /echo HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"[: number * 8]
    )
    await turns(number)
    reset(sock)


async def listen_slowly(number: int, uri: str, **options: Any) -> None:
    """Let messages wait for a long time; none is lost."""
    async with websockets.connect(f"{uri}/noise/{number}/30000/40", max_queue=2, **options) as connection:
        await turns(300)
        received = 0
        async for message in connection:
            assert digest(message) == digest(noise(30_000, number + received))
            received += 1
            await turns(5)
        assert received == 40


async def traffic(address: Any, **options: Any) -> None:
    """Run all of them at the same time; the server still answers afterwards."""
    uri = f"{'wss' if options else 'ws'}://localhost:{address[1]}"
    options.update(host=address[0], proxy=None)
    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(converse(number, uri, **options))
        for number in range(12):
            group.create_task(leave_abruptly(number, uri, **options))
            group.create_task(leave_in_the_handshake(number, address))
        for number in range(3):
            group.create_task(listen_slowly(number, uri, **options))
    await converse(0, uri, **options)


class TestInThisProcess:
    """Server and client on the running loop, in a time in which sleeps take no time."""

    @pytest.fixture
    def kernel(self) -> JumpingClock:
        return JumpingClock()

    @pytest.mark.slow
    @pytest.mark.usefixtures("either")
    async def test_every_message_reaches_its_own_client(self, loop: whorl.EventLoop) -> None:
        async with serving(APP) as address:
            await traffic(address)
        await nothing_is_left(loop)

    @pytest.mark.slow
    @pytest.mark.usefixtures("either")
    async def test_tls(self, loop: whorl.EventLoop, reported: list[dict[str, Any]]) -> None:
        async with serving(APP, tls=server_context()) as address:
            await traffic(address, ssl=client_context())
        await nothing_is_left(loop)
        assert {type(context["exception"]) for context in reported} == {ssl.SSLError}, "clear text is refused"
        reported.clear()

    async def test_a_unix_socket(self, loop: whorl.EventLoop, tmp_path: Any) -> None:
        path = str(tmp_path / "socket")
        async with serving(APP, "unix", path):
            await greet(path)
        await nothing_is_left(loop)


@pytest.mark.slow
async def test_a_server_in_another_process(loop: whorl.EventLoop) -> None:
    async with serving_in_child(APP) as address:
        uri = f"ws://localhost:{address[1]}/loop"
        async with websockets.connect(uri, host=address[0], proxy=None) as connection:
            assert (await connection.recv()).startswith("whorl.")
        await traffic(address)
