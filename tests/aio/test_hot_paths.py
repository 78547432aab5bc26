"""Frequent operations make no enum member, and look for no method on the loop.

An enum member costs 1,000 to 5,000 instructions, a method that is looked up on a Python subclass 1,200.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import enum
import inspect
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

import whorl
from tests.aio.sockets_for_tests import socket_pair

pytestmark = pytest.mark.skipif(not whorl.compiled, reason="uncompiled, the loop need not be fast")

TIMES = 10

Operation = Callable[[], Awaitable[object]]
Stack = contextlib.ExitStack


class Client(asyncio.Protocol):
    """Notes the next data and the end."""

    def connection_made(self, transport: Any) -> None:
        loop = asyncio.get_running_loop()
        self.answer, self.end = loop.create_future(), loop.create_future()

    def data_received(self, data: bytes) -> None:
        self.answer.set_result(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.end.set_result(error)


class Echo(asyncio.Protocol):
    """Sends everything back."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Datagrams(asyncio.DatagramProtocol):
    """Notes the next datagram."""

    answer: asyncio.Future[bytes]

    def datagram_received(self, data: bytes, address: Any) -> None:
        self.answer.set_result(data)


# Each of these makes an operation on a loop, with the address of an echo server.


async def connection(loop: whorl.EventLoop, address: Any, stack: Stack) -> Operation:
    async def operation() -> None:
        transport, protocol = await loop.create_connection(Client, *address)
        transport.close()
        await protocol.end

    return operation


async def connection_by_streams(loop: whorl.EventLoop, address: Any, stack: Stack) -> Operation:
    async def operation() -> None:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"x")
        await writer.drain()
        assert await reader.readexactly(1) == b"x"
        writer.close()
        await writer.wait_closed()

    return operation


async def connection_over_an_own_socket(loop: whorl.EventLoop, address: Any, stack: Stack) -> Operation:
    async def operation() -> None:
        sock = socket.socket()
        sock.setblocking(False)
        await loop.sock_connect(sock, address)
        transport, protocol = await loop.create_connection(Client, sock=sock)
        transport.close()
        await protocol.end

    return operation


async def echo(loop: whorl.EventLoop, address: Any, stack: Stack) -> Operation:
    transport, protocol = await loop.create_connection(Client, *address)
    stack.callback(transport.close)

    async def operation() -> None:
        protocol.answer = loop.create_future()
        transport.write(b"x")
        assert await protocol.answer == b"x"

    return operation


async def extra_info(loop: whorl.EventLoop, address: Any, stack: Stack) -> Operation:
    transport, _ = await loop.create_connection(Client, *address)
    stack.callback(transport.close)

    async def operation() -> None:
        assert transport.get_extra_info("socket").family == socket.AF_INET
        assert transport.get_extra_info("peername") == address

    return operation


async def sock_methods(loop: whorl.EventLoop, address: Any, stack: Stack) -> Operation:
    near, far = map(stack.enter_context, socket_pair("tcp"))

    async def operation() -> None:
        await loop.sock_sendall(near, b"x")
        assert await loop.sock_recv(far, 1) == b"x"

    return operation


async def datagrams(loop: whorl.EventLoop, address: Any, stack: Stack) -> Operation:
    transport, protocol = await loop.create_datagram_endpoint(Datagrams, local_addr=("127.0.0.1", 0))
    stack.callback(transport.close)
    own = transport.get_extra_info("sockname")

    async def operation() -> None:
        protocol.answer = loop.create_future()
        transport.sendto(b"x", own)
        assert await protocol.answer == b"x"

    return operation


async def timeout(loop: whorl.EventLoop, address: Any, stack: Stack) -> Operation:
    async def operation() -> None:
        async with asyncio.timeout(5):
            await asyncio.sleep(0)

    return operation


async def call_in_a_thread(loop: whorl.EventLoop, address: Any, stack: Stack) -> Operation:
    async def operation() -> None:
        assert await loop.run_in_executor(None, int) == 0

    return operation


@contextlib.contextmanager
def calls_of_python() -> Iterator[collections.Counter[tuple[str, str]]]:
    """Count the calls of Python functions in this thread, by file and name."""
    calls: collections.Counter[tuple[str, str]] = collections.Counter()

    def note(frame: Any, event: str, argument: object) -> None:
        if event == "call":
            calls[frame.f_code.co_filename, frame.f_code.co_name] += 1

    former = sys.getprofile()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(former)


@pytest.mark.parametrize(
    "make",
    [
        connection,
        connection_by_streams,
        connection_over_an_own_socket,
        echo,
        extra_info,
        sock_methods,
        datagrams,
        timeout,
        call_in_a_thread,
    ],
)
async def test_frequent_operations_make_no_enum_member(
    loop: whorl.EventLoop, make: Callable[..., Awaitable[Operation]]
) -> None:
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    with contextlib.ExitStack() as stack:
        operation = await make(loop, server.sockets[0].getsockname(), stack)
        await operation()
        with calls_of_python() as calls:
            for _ in range(TIMES):
                await operation()
            await asyncio.sleep(0)
    server.close()
    await server.wait_closed()
    made = {name: count for (file, name), count in calls.items() if file == inspect.getsourcefile(enum)}
    assert calls
    assert made == {}


def test_the_counter_of_calls_sees_an_enum_member_that_is_made() -> None:
    with socket.socket() as sock, calls_of_python() as calls:
        assert sock.type == socket.SOCK_STREAM
    assert any(file == inspect.getsourcefile(enum) for file, _ in calls)


class Searched(whorl.EventLoop):
    """Notes each attribute that is looked up."""

    def __init__(self) -> None:
        self.searched_for: list[str] = []
        super().__init__()

    def __getattribute__(self, name: str) -> Any:
        if name != "searched_for":
            self.searched_for.append(name)
        return super().__getattribute__(name)


@pytest.mark.gil("no object of a watch is used again")
@pytest.mark.parametrize("name", ["call_soon", "call_later", "readers", "turns"])
def test_frequent_operations_look_for_no_method_of_the_loop(name: str) -> None:
    async def main() -> list[str]:  # the names of methods
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Searched)
        near, far = socket_pair("unix")
        add, remove, call_soon, call_later = (
            loop.add_reader, loop.remove_reader, loop.call_soon, loop.call_later
        )  # fmt: skip

        async def operation() -> None:
            if name == "call_soon":
                call_soon(int)
            elif name == "call_later":
                call_later(0, int)
                call_later(60, int).cancel()
            elif name == "readers":
                add(near.fileno(), int)
                remove(near.fileno())
            else:
                await asyncio.sleep(0)

        await operation()
        loop.searched_for.clear()
        for _ in range(TIMES):
            await operation()
        found = [asked for asked in loop.searched_for if callable(getattr(Searched, asked, None))]
        near.close()
        far.close()
        return found

    loop = Searched()
    found = loop.run_until_complete(main())
    loop.close()
    assert set(found) <= {"call_soon"}  # CPython's task asks for it.
    assert len(found) <= TIMES
