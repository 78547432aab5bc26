"""The socket that programs get from a transport: it says what asyncio's says, and mostly from memory."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from typing import Any

import pytest

import whorl
from tests.aio.conftest import Connect
from tests.aio.sockets_for_tests import turns

RESETS = struct.pack("ii", 1, 0)  # SO_LINGER: `close` resets the connection


@pytest.fixture
def no_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no call of asyncio's view of a socket ask the system for a name or a kind."""

    def refuse(self: Any) -> Any:
        raise AssertionError("the system was asked")

    monkeypatch.setattr(asyncio.trsock.TransportSocket, "getpeername", refuse)
    for name in ("family", "type", "proto"):
        monkeypatch.setattr(asyncio.trsock.TransportSocket, name, property(refuse))


async def test_the_socket_says_what_asyncios_says(loop: whorl.EventLoop, connect: Connect, kind: str) -> None:
    transport, _ = await connect(kind, asyncio.Protocol())
    sock = transport.get_extra_info("socket")
    stock = asyncio.trsock.TransportSocket(sock._sock)
    assert isinstance(sock, asyncio.trsock.TransportSocket)
    assert repr(sock) == repr(stock)
    for name in ("family", "type", "proto"):
        assert getattr(sock, name) == getattr(stock, name)
    for name in ("fileno", "getpeername", "getsockname", "get_inheritable", "gettimeout"):
        assert getattr(sock, name)() == getattr(stock, name)()
    option = (socket.SOL_SOCKET, socket.SO_TYPE)
    assert sock.getsockopt(*option) == stock.getsockopt(*option) == socket.SOCK_STREAM


async def test_kinds_of_the_socket_come_from_memory(
    connect: Connect, kind: str, request: pytest.FixtureRequest
) -> None:
    transport, _ = await connect(kind, asyncio.Protocol())
    sock = transport.get_extra_info("socket")
    kinds = sock.family, sock.type, sock.proto
    request.getfixturevalue("no_system")
    assert (sock.family, sock.type, sock.proto) == kinds


@pytest.mark.skipif(not whorl.compiled, reason="uncompiled, no edge tells that a peer is gone")
async def test_peername_of_an_open_connection_comes_from_memory(
    connect: Connect, request: pytest.FixtureRequest
) -> None:
    transport, peer = await connect("tcp", asyncio.Protocol())
    sock = transport.get_extra_info("socket")
    request.getfixturevalue("no_system")
    assert sock.getpeername() == peer.getsockname()


async def test_peername_of_a_connection_that_was_reset_is_what_the_system_says(
    loop: whorl.EventLoop, connect: Connect
) -> None:
    class Keeps(asyncio.Protocol):
        def connection_lost(self, error: BaseException | None) -> None:
            try:
                sock.getpeername()
            except OSError as refusal:
                codes.append(refusal.errno)
            lost.set_result(None)

    codes: list[int | None] = []
    lost = loop.create_future()
    transport, peer = await connect("tcp", Keeps())
    sock = transport.get_extra_info("socket")
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESETS)
    peer.close()
    await lost
    await turns(1)
    assert codes == [errno.ENOTCONN]
    with pytest.raises(OSError, match=r"\[Errno 9\]"):
        transport.get_extra_info("socket").getpeername()


async def test_peername_is_the_systems_while_nobody_watches_the_peer(loop: whorl.EventLoop) -> None:
    class Pauses(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            transport.pause_reading()
            made.set_result((transport, transport.get_extra_info("socket")))

    made: asyncio.Future[Any] = loop.create_future()
    server = await loop.create_server(Pauses, "127.0.0.1", 0)
    peer = socket.create_connection(server.sockets[0].getsockname())
    transport, sock = await made
    assert sock.getpeername() == peer.getsockname()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESETS)
    peer.close()
    with pytest.raises(OSError, match=rf"\[Errno {errno.ENOTCONN}\]"):
        sock.getpeername()
    transport.abort()
    server.close()
    await server.wait_closed()
    await turns(1)
