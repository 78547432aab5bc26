"""Published weaknesses of event loops, each with a test that Whorl does not have it.

Others stand beside their subject. `writelines` that ignores the watermarks (CVE-2024-12254) is in test_flow,
TLS that is ignored in test_traps. Pipes that are regular files are in test_pipes, descriptors closed
underneath and writing after the end in test_transports. Memory that grows is in test_tls_flow, and the
machine's names that are cut off at a zero byte in handles/test_dns.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import mmap
import os
import resource
import socket
import threading
from typing import Any

import pytest

import whorl
from tests.aio.compare_with_asyncio import error_as_in_asyncio
from tests.aio.conftest import Connect
from tests.aio.sockets_for_tests import Recorder, receive, socket_pair, turns, turns_while_idle
from tests.aio.tls_contexts import client_context, server_context

# Buffers.


def test_a_datagram_is_never_received_beyond_the_buffer() -> None:
    # CVE-2026-3298: a number of bytes that is larger than the buffer was believed.
    async def receive_too_much(loop: Any) -> Any:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("127.0.0.1", 0))
            sock.setblocking(False)
            sock.sendto(b"x" * 100, sock.getsockname())
            return await loop.sock_recvfrom_into(sock, bytearray(10), 100)

    assert error_as_in_asyncio(receive_too_much)[0] is ValueError


async def test_a_datagram_longer_than_the_buffer_is_cut(loop: whorl.EventLoop) -> None:
    block = bytearray(b"-" * 20)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
        sock.sendto(b"x" * 100, sock.getsockname())
        with memoryview(block)[:10] as part:
            size, _ = await loop.sock_recvfrom_into(sock, part)
    assert (size, bytes(block)) == (10, b"x" * 10 + b"-" * 10)


@pytest.mark.parametrize("kind", ["tcp", "unix"])
async def test_sock_recv_into_writes_only_within_its_buffer(loop: whorl.EventLoop, kind: str) -> None:
    block = bytearray(b"-" * 20)
    one, other = socket_pair(kind)
    other.send(b"x" * 100)
    with memoryview(block)[5:15] as part:
        assert await loop.sock_recv_into(one, part) == 10
    assert bytes(block) == b"-" * 5 + b"x" * 10 + b"-" * 5
    one.close()
    other.close()


# Names.


@pytest.mark.parametrize(
    "host", ["127.0.0.1\0.example.com", "localhost\0", "\0", "a" * 256 + ".example.com", "." * 300]
)
async def test_host_name_is_refused_and_not_cut_off(loop: whorl.EventLoop, host: str) -> None:
    # CVE-2024-24806: a name was cut off, and what was left of it meant another host.
    with pytest.raises((ValueError, OSError)):
        await loop.getaddrinfo(host, 80)
    with pytest.raises((ValueError, OSError)):
        await loop.create_connection(asyncio.Protocol, host, 80)


async def test_the_name_of_a_unix_socket_is_never_cut(
    loop: whorl.EventLoop, tmp_path: os.PathLike[str]
) -> None:
    for name in (os.path.join(tmp_path, "x" * 200), os.path.join(tmp_path, "name\0more")):
        with pytest.raises((ValueError, OSError)):
            await loop.create_unix_server(asyncio.Protocol, name)
    assert os.listdir(tmp_path) == []


# Ends.


async def test_a_cancelled_connection_is_closed_once(loop: whorl.EventLoop) -> None:
    # A descriptor that is closed twice may by then be somebody else's.
    for backlog_filled in range(3):
        listener = socket.create_server(("127.0.0.1", 0), backlog=0)
        connecting = asyncio.ensure_future(loop.create_connection(Recorder, *listener.getsockname()))
        await turns(backlog_filled)
        connecting.cancel()
        mine = socket.socketpair()
        await asyncio.wait([connecting])
        await turns(3)
        mine[0].send(b"still mine")
        assert mine[1].recv(100) == b"still mine"
        for sock in (listener, *mine):
            sock.close()
        if not connecting.cancelled():
            transport, protocol = connecting.result()
            transport.abort()
            await protocol.until_lost()


@pytest.mark.parametrize("count", range(8))
async def test_a_server_made_of_nothing_is_an_error_at_most(loop: whorl.EventLoop, count: int) -> None:
    # Closing one crashed the process elsewhere.
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    with contextlib.suppress(TypeError, AttributeError):
        nothing = type(server)(*[None] * count)  # type: ignore[list-item]
        assert not nothing.is_serving()
        nothing.close()
        nothing.close_clients()
        await nothing.wait_closed()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("paused", [False, True])
async def test_a_tls_connection_that_ends_without_a_word_does_not_spin(
    loop: whorl.EventLoop, paused: bool
) -> None:
    accepted: list[Recorder] = []

    def factory() -> Recorder:
        accepted.append(Recorder())
        return accepted[-1]

    server = await loop.create_server(factory, "127.0.0.1", 0, ssl=server_context())
    transport, protocol = await loop.create_connection(
        Recorder, *server.sockets[0].getsockname(), ssl=client_context(), server_hostname="localhost"
    )
    transport.write(b"x" * 100)
    await accepted[0].until_received(100)
    if paused:
        accepted[0].transport.pause_reading()
    transport.abort()
    await protocol.until_lost()
    assert await turns_while_idle() < 10
    accepted[0].transport.abort()
    await accepted[0].until_lost()
    server.close()
    await server.wait_closed()


# Sizes.


async def test_empty_writes_are_sent_without_waiting(
    loop: whorl.EventLoop, connect: Connect, kind: str
) -> None:
    transport, peer = await connect(kind, Recorder())
    for nothing in (b"", bytearray(), memoryview(b"")):
        transport.write(nothing)
        transport.writelines([nothing, nothing])
        await loop.sock_sendall(peer, nothing)
    assert transport.get_write_buffer_size() == 0
    transport.write(b"something")
    assert await receive(peer, 9) == b"something"


async def test_an_empty_datagram_arrives(loop: whorl.EventLoop) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
        await loop.sock_sendto(sock, b"", sock.getsockname())
        assert await loop.sock_recvfrom(sock, 100) == (b"", sock.getsockname())


@pytest.mark.parametrize("number", [1_023, 1_024, 10_000, 1_000_000])
async def test_a_descriptor_may_have_a_high_number(loop: whorl.EventLoop, number: int) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = tuple(max(limit, number + 10) for limit in limits if limit != resource.RLIM_INFINITY)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, enough if len(enough) == 2 else (number + 10, limits[1]))
    except (ValueError, OSError):
        pytest.skip(f"this process may not have descriptor {number}")
    try:
        ours, peer = socket_pair("tcp")
        high = socket.socket(fileno=fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, number))
        high.setblocking(False)
        ours.close()
        protocol = Recorder()
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, high)
        transport.write(b"from above")
        assert await receive(peer, 10) == b"from above"
        peer.send(b"to above")
        assert await protocol.until_received(8) == b"to above"
        transport.close()
        await protocol.until_lost()
        peer.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.skipif("WHORL_GIGABYTES" not in os.environ, reason="moves gigabytes: set WHORL_GIGABYTES=1")
async def test_more_bytes_than_32_bits_count(loop: whorl.EventLoop) -> None:
    size = 3 * 2**30 + 5
    one, other = socket_pair("unix")
    other.setblocking(True)
    received = 0

    def drain() -> None:
        nonlocal received
        block = bytearray(1 << 20)
        while count := other.recv_into(block):
            received += count

    reading = threading.Thread(target=drain)
    reading.start()
    with mmap.mmap(-1, size) as memory:
        await loop.sock_sendall(one, memory)
    one.close()
    reading.join()
    other.close()
    assert received == size
