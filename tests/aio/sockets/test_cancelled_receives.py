"""A receive that is cancelled loses nothing, with any awaiter: the next one finds what had arrived."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

import whorl
from tests.aio.sockets_for_tests import socket_pair, turns
from whorl.aio.runners.compiled_tasks_loop import CompiledTasksEventLoop

pytestmark = pytest.mark.usefixtures("no_leak")

PythonTask: Any = asyncio.tasks._PyTask  # type: ignore[attr-defined]


class OwnSocket(socket.socket):
    """A socket whose methods are called as asyncio calls them."""

    def recv(self, *args: Any) -> bytes:
        return super().recv(*args)

    def recv_into(self, *args: Any) -> int:
        return super().recv_into(*args)

    def recvfrom(self, *args: Any) -> Any:
        return super().recvfrom(*args)

    def recvfrom_into(self, *args: Any) -> Any:
        return super().recvfrom_into(*args)

    def accept(self) -> Any:
        return super().accept()


class NosyTask(asyncio.Task[Any]):
    """A task whose waits another listener sees, too."""

    def look(self) -> None:
        waiter = self._fut_waiter  # type: ignore[attr-defined]
        if waiter is not None:
            waiter.add_done_callback(lambda _: None)


def python_task(loop: Any, coro: Any, **options: Any) -> Any:
    return PythonTask(coro, loop=loop, **options)


def nosy_task(loop: Any, coro: Any, **options: Any) -> Any:
    return NosyTask(coro, loop=loop, **options)


AWAITERS = ["a task", "a Python task", "a task others look at"]
if sys.version_info >= (3, 12):
    AWAITERS.append("an eager task")


@pytest.fixture(params=AWAITERS)
def factory(request: pytest.FixtureRequest) -> Any:
    """Return the factory of the tasks that wait."""
    if request.param == "an eager task":
        return asyncio.eager_task_factory  # type: ignore[attr-defined]
    return {"a task": None, "a Python task": python_task, "a task others look at": nosy_task}[request.param]


@pytest.fixture(params=["plain", "debug"])
def debug(request: pytest.FixtureRequest) -> bool:
    """Return whether the loop is in debug mode."""
    return bool(request.param == "debug")


@pytest.fixture(params=[whorl.EventLoop, CompiledTasksEventLoop])
def any_loop(request: pytest.FixtureRequest, factory: Any, debug: bool) -> Iterator[Any]:
    """Yield a loop with such tasks."""
    loop = request.param()
    loop.set_task_factory(factory)
    loop.set_debug(debug)
    loop.slow_callback_duration = 100
    yield loop
    loop.close()


# Each receives once, by a task, and gives a message.


async def recv(loop: Any, sock: socket.socket) -> bytes:
    data: bytes = await loop.sock_recv(sock, 100)
    return data


async def recv_into(loop: Any, sock: socket.socket) -> bytes:
    buffer = bytearray(100)
    return bytes(buffer[: await loop.sock_recv_into(sock, buffer)])


async def recvfrom(loop: Any, sock: socket.socket) -> bytes:
    data: bytes = (await loop.sock_recvfrom(sock, 100))[0]
    return data


async def recvfrom_into(loop: Any, sock: socket.socket) -> bytes:
    buffer = bytearray(100)
    size, _ = await loop.sock_recvfrom_into(sock, buffer)
    return bytes(buffer[:size])


Receive = Callable[[Any, socket.socket], Coroutine[Any, Any, bytes]]


async def received_late(
    loop: Any, receive: Receive, sock: socket.socket, send: Callable[[bytes], object]
) -> list[bytes]:
    """Receive messages by tasks, each of which is cancelled some turns after its message was sent."""
    got = []
    for wait in range(6):
        task = loop.create_task(receive(loop, sock))
        await turns(3)
        if isinstance(task, NosyTask):
            task.look()
        send(b"%d" % wait)
        await turns(wait)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            got.append(await task)
            continue
        got.append(await receive(loop, sock))  # without a timeout: no task of Python's is `current_task`
    return got


def own(sock: socket.socket) -> socket.socket:
    """Return the same as a socket with methods of its own."""
    made = OwnSocket(fileno=sock.detach())
    made.setblocking(False)
    return made


@pytest.mark.parametrize("kind", ["tcp", "unix", "udp"])
@pytest.mark.parametrize("has_own", [False, True])
@pytest.mark.parametrize("receive", [recv, recv_into, recvfrom, recvfrom_into])
def test_a_cancelled_receive_leaves_its_message_to_the_next(
    any_loop: Any, receive: Receive, has_own: bool, kind: str
) -> None:
    if kind == "udp":
        ours, peer = (socket.socket(type=socket.SOCK_DGRAM) for _ in range(2))
        for sock in (ours, peer):
            sock.bind(("127.0.0.1", 0))
            sock.setblocking(False)
        peer.connect(ours.getsockname())
    else:
        ours, peer = socket_pair(kind)
    if has_own:
        ours = own(ours)
    with ours, peer:
        got = any_loop.run_until_complete(received_late(any_loop, receive, ours, peer.send))
    assert got == [b"0", b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize("has_own", [False, True])
def test_a_cancelled_accept_leaves_its_connection_to_the_next(any_loop: Any, has_own: bool) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    if has_own:
        listener = own(listener)
    clients: list[socket.socket] = []

    def connect(name: bytes) -> None:
        clients.append(socket.create_connection(listener.getsockname()))
        clients[-1].send(name)

    async def accept(loop: Any, sock: socket.socket) -> bytes:
        connection, _ = await loop.sock_accept(sock)
        with connection:
            connection.setblocking(True)
            name: bytes = connection.recv(1)
            return name

    with listener, contextlib.ExitStack() as stack:
        got = any_loop.run_until_complete(received_late(any_loop, accept, listener, connect))
        for client in clients:
            stack.enter_context(client)
    assert got == [b"0", b"1", b"2", b"3", b"4", b"5"]
