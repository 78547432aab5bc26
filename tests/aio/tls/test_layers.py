"""TLS over transports of every kind: over TLS, over transports made by others, over tunnels."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any

import pytest

import whorl
from tests.aio.sockets_for_tests import BufferedRecorder, Recorder, digest, noise, socket_pair, turns
from tests.aio.tls_contexts import ManualPeer, client_context, manual_connection, server_context, tls_pair

pytestmark = pytest.mark.usefixtures("no_leak")


async def upgrade(loop: Any, client: Any, server: Any) -> tuple[Any, Any]:
    """Return TLS over two transports that are connected with each other."""
    return tuple(
        await asyncio.gather(
            loop.start_tls(client, client.get_protocol(), client_context(), server_hostname="localhost"),
            loop.start_tls(server, server.get_protocol(), server_context(), server_side=True),
        )
    )


# TLS over TLS.


@pytest.mark.parametrize("depth", [1, 3])
async def test_tls_over_tls(loop: whorl.EventLoop, kind: str, depth: int) -> None:
    data = noise(1_000_000)
    async with tls_pair(loop, kind, small=True) as (client, server):
        ours, theirs = client.transport, server.transport
        for _ in range(depth):
            ours, theirs = await upgrade(loop, ours, theirs)
        ours.write(data)
        theirs.write(data[::-1])
        assert digest(await server.protocol.until_received(len(data))) == digest(data)
        assert digest(await client.protocol.until_received(len(data))) == digest(data[::-1])
        ours.close()
        assert await server.protocol.until_lost() is None
        assert await client.protocol.until_lost() is None
        for protocol in (client.protocol, server.protocol):
            assert protocol.calls[-2:] == ["eof_received", "connection_lost"]
            assert protocol.calls.count("connection_made") == 1


async def test_sizes_count_through_all_layers(loop: whorl.EventLoop) -> None:
    async with tls_pair(loop, small=True) as (client, server):
        ours, _ = await upgrade(loop, client.transport, server.transport)
        ours.write(noise(900_000))
        assert 850_000 < ours.get_write_buffer_size() < 930_000
        assert client.protocol.calls[-1] == "pause_writing"
        await server.protocol.until_received(900_000)
        await turns(20)
        assert client.protocol.calls[-1] == "resume_writing"
        assert ours.get_write_buffer_size() == 0


async def test_buffers_of_protocols_over_tls_over_tls(loop: whorl.EventLoop) -> None:
    data = noise(200_000)
    async with tls_pair(loop, client=lambda: BufferedRecorder(1000)) as (client, server):
        ours, theirs = await upgrade(loop, client.transport, server.transport)
        theirs.write(data)
        assert digest(await client.protocol.until_received(len(data))) == digest(data)
        ours.close()
        await server.protocol.until_lost()


# Over transports made by others.


class Tunnel(asyncio.Transport):
    """A transport over nothing: it hands what is written to its other end in a later turn.

    It knows what any transport must and no more: no `_force_close`, no sizes of buffers.
    """

    _start_tls_compatible = True

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: Any, quiet: bool) -> None:
        super().__init__({"tunnel": self})
        self.loop = loop
        self.protocol = protocol
        self.other: Tunnel | None = None
        self.waiting: list[bytes] = []
        self.is_paused = False
        self.closing = False
        self.quiet = quiet  # whether its protocols hear only data_received

    def get_protocol(self) -> Any:
        return self.protocol

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def is_closing(self) -> bool:
        return self.closing

    def is_reading(self) -> bool:
        return not self.is_paused

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False
        self.loop.call_soon(self.deliver)

    def write(self, data: Any) -> None:
        other = self.other
        if other is not None and not self.closing:
            other.waiting.append(bytes(data))
            self.loop.call_soon(other.deliver)

    def deliver(self) -> None:
        while self.waiting and not self.is_paused and not self.closing:
            data = self.waiting.pop(0)
            if self.quiet:
                self.protocol.data_received(data)
            else:
                buffer = self.protocol.get_buffer(len(data))
                size = min(len(buffer), len(data))
                buffer[:size] = data[:size]
                if data[size:]:
                    self.waiting.insert(0, data[size:])
                self.protocol.buffer_updated(size)

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            self.loop.call_soon(self.lose)

    abort = close

    def lose(self) -> None:
        self.protocol.connection_lost(None)
        other, self.other = self.other, None
        if other is not None and not other.closing:
            if other.protocol.eof_received() is not True:
                other.close()


def tunnel(loop: Any, quiet: bool) -> tuple[Tunnel, Tunnel]:
    """Return two ends of a tunnel after `connection_made` of their protocols."""
    ours, theirs = Tunnel(loop, Recorder(), quiet), Tunnel(loop, Recorder(), quiet)
    ours.other, theirs.other = theirs, ours
    for end in (ours, theirs):
        end.protocol.connection_made(end)
    return ours, theirs


@pytest.mark.parametrize("quiet", [False, True], ids=["buffers", "data_received"])
async def test_tls_over_a_transport_of_the_users(loop: whorl.EventLoop, quiet: bool) -> None:
    data = noise(1_000_000)
    ends = tunnel(loop, quiet)
    protocols = [end.protocol for end in ends]
    ours, theirs = await upgrade(loop, *ends)
    assert ours.get_extra_info("tunnel") is ends[0]
    ours.write(data)
    theirs.write(data[::-1])
    assert digest(await protocols[1].until_received(len(data))) == digest(data)
    assert digest(await protocols[0].until_received(len(data))) == digest(data[::-1])
    ours.close()
    for protocol in protocols:
        assert await protocol.until_lost() is None
        assert protocol.calls[-1] == "connection_lost"


async def test_a_transport_of_the_users_can_be_aborted(loop: whorl.EventLoop) -> None:
    ends = tunnel(loop, quiet=True)
    protocols = [end.protocol for end in ends]
    ours, _ = await upgrade(loop, *ends)
    ours.abort()
    for protocol in protocols:
        assert await protocol.until_lost() is None


async def test_a_tunnel_through_tls_that_carries_tls(loop: whorl.EventLoop) -> None:
    """A proxy: the client talks TLS with it, then TLS with the server behind it."""

    class Proxy(asyncio.Protocol):
        def __init__(self, target: Any = None) -> None:
            self.target = target
            self.transport: Any = None
            self.early: list[bytes] = []

        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            if self.target is None:
                self.target = self
                assert data == b"CONNECT\n"
                loop.create_task(self.join())
            elif self.target is self:
                self.early.append(data)
            else:
                self.target.write(data)

        async def join(self) -> None:
            target, _ = await loop.create_connection(lambda: Proxy(self.transport), *address)
            self.transport.write(b"OK\n")
            target.writelines(self.early)
            self.target = target

        def connection_lost(self, error: BaseException | None) -> None:
            self.target.close()

    class Answer(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.write(data.upper())

    behind = await loop.create_server(Answer, "127.0.0.1", 0, ssl=server_context())
    address = behind.sockets[0].getsockname()
    proxy = await loop.create_server(Proxy, "127.0.0.1", 0, ssl=server_context())
    client = Recorder()
    transport, _ = await loop.create_connection(
        lambda: client, *proxy.sockets[0].getsockname(), ssl=client_context(), server_hostname="localhost"
    )
    transport.write(b"CONNECT\n")
    assert await client.until_received(3) == b"OK\n"
    inner = await loop.start_tls(transport, client, client_context(), server_hostname="localhost")
    assert inner is not None
    inner.write(b"hello" * 100_000)
    assert await client.until_received(500_003) == b"OK\n" + b"HELLO" * 100_000
    inner.close()
    assert await client.until_lost() is None
    for server in (proxy, behind):
        server.close()
        await server.wait_closed()


# Upgrades.


async def test_an_upgrade_keeps_what_waits_in_the_clear(loop: whorl.EventLoop, kind: str) -> None:
    # The protocol was asked to pause before the upgrade, and must be asked to resume after it.
    data = noise(500_000)
    ours, theirs = socket_pair(kind, small=True)
    protocol = Recorder()
    with theirs:
        transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
        transport.write(data)
        assert protocol.calls[-1] == "pause_writing"
        task = loop.create_task(
            loop.start_tls(transport, protocol, client_context(), server_hostname="localhost")
        )
        received = bytearray()
        while len(received) < len(data):
            received += await loop.sock_recv(theirs, min(8192, len(data) - len(received)))
        assert digest(received) == digest(data)
        peer = ManualPeer(theirs)
        await peer.handshake()
        secured = await task
        await turns(20)
        assert protocol.calls.count("resume_writing") == 1
        secured.write(b"and on")
        assert await peer.receive(6) == b"and on"
        secured.abort()
        await protocol.until_lost()


@pytest.mark.parametrize("ends", ["close", "abort"])
async def test_a_transport_that_ends_during_its_upgrade(loop: whorl.EventLoop, ends: str) -> None:
    # As in asyncio there is no transport then.
    ours, theirs = socket_pair("tcp")
    protocol = Recorder()
    with theirs:
        transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
        task = loop.create_task(
            loop.start_tls(transport, protocol, client_context(), server_hostname="localhost")
        )
        await turns(10)
        getattr(transport, ends)()
        assert await task is None
        await turns(3)
        assert transport.is_closing()


async def test_a_transport_that_was_lost_before_its_upgrade(loop: whorl.EventLoop) -> None:
    ours, theirs = socket_pair("tcp")
    protocol = Recorder()
    with theirs:
        transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
        transport.abort()
        assert (
            await loop.start_tls(transport, protocol, client_context(), server_hostname="localhost") is None
        )
        assert await protocol.until_lost() is None


async def test_writing_may_begin_before_the_handshake_is_over(loop: whorl.EventLoop) -> None:
    ours, theirs = socket_pair("tcp")
    protocol = Recorder()
    with theirs:
        transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
        task = loop.create_task(
            loop.start_tls(transport, protocol, client_context(), server_hostname="localhost")
        )
        await turns(3)
        secured = transport.get_protocol()._app_transport
        secured.write(b"early")
        secured.writelines([b" ", b"words"])
        assert secured.get_write_buffer_size() >= 11
        peer = ManualPeer(theirs)
        await peer.handshake()
        assert await peer.receive(11) == b"early words"
        assert await task is secured
        secured.abort()
        await protocol.until_lost()


# Others' TLS over our transports.


async def test_asyncios_own_tls_works_over_our_transports(loop: whorl.EventLoop) -> None:
    # Some libraries put asyncio's protocol over a transport by hand.
    from asyncio import sslproto

    ours, theirs = socket_pair("tcp")
    protocol = Recorder()
    with theirs:
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
        make: Callable[..., Any] = sslproto.SSLProtocol
        waiter = loop.create_future()
        tls = make(loop, protocol, client_context(), waiter, False, "localhost")
        transport.set_protocol(tls)
        tls.connection_made(transport)
        peer = ManualPeer(theirs)
        await peer.handshake()
        await waiter
        protocol.transport.write(b"hello")
        assert await peer.receive(5) == b"hello"
        await peer.send(b"you too")
        assert await protocol.until_received(7) == b"you too"
        protocol.transport.abort()
        await protocol.until_lost()


async def test_blocking_tls_at_the_other_end(loop: whorl.EventLoop) -> None:
    def talk(sock: socket.socket) -> bytes:
        sock.setblocking(True)
        with client_context().wrap_socket(sock, server_hostname="localhost") as tls:
            tls.sendall(b"question")
            answer = tls.recv(100)
            tls.unwrap().close()
            return answer

    class Answer(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.write(b"answer")

    ours, theirs = socket_pair("tcp")
    protocol = Answer()
    talking = loop.run_in_executor(None, talk, theirs)
    await loop.connect_accepted_socket(lambda: protocol, ours, ssl=server_context())
    assert await talking == b"answer"
    assert await protocol.until_lost() is None


async def test_a_connection_that_is_not_tls_is_refused_by_a_server(loop: whorl.EventLoop) -> None:
    protocol = Recorder()
    ours, theirs = socket_pair("tcp")
    with theirs:
        theirs.send(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises(ssl.SSLError):
            await loop.connect_accepted_socket(lambda: protocol, ours, ssl=server_context())
    assert protocol.calls == []


async def test_the_peer_may_be_a_client(loop: whorl.EventLoop, kind: str) -> None:
    protocol = Recorder()
    async with manual_connection(loop, protocol, kind, server_side=True) as (transport, peer):
        transport.write(b"to the client")
        assert await peer.receive(13) == b"to the client"
