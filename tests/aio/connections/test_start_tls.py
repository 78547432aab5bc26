"""TLS that begins on a connection that talks in the clear."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import whorl
from tests.aio.compare_with_asyncio import error_as_in_asyncio
from tests.aio.sockets_for_tests import Recorder, digest, noise, socket_pair, turns
from tests.aio.tls_contexts import client_context, distrustful_context, server_context

pytestmark = pytest.mark.usefixtures("no_leak")

Sides = tuple[tuple[Any, Recorder], tuple[Any, Recorder]]


@asynccontextmanager
async def clear_connection(loop: whorl.EventLoop, kind: str) -> AsyncIterator[Sides]:
    """Yield two transports that are connected with each other."""
    ours, theirs = socket_pair(kind)
    client = await loop.create_connection(Recorder, sock=ours)
    server = await loop.connect_accepted_socket(Recorder, theirs)
    try:
        yield client, server
    finally:
        client[0].abort()
        server[0].abort()
        await turns(5)


async def secure(loop: whorl.EventLoop, sides: Sides, **options: Any) -> tuple[Any, Any]:
    """Return both transports in TLS."""
    (client, client_protocol), (server, server_protocol) = sides
    return tuple(
        await asyncio.gather(
            loop.start_tls(client, client_protocol, client_context(), server_hostname="localhost", **options),
            loop.start_tls(server, server_protocol, server_context(), server_side=True, **options),
        )
    )


async def test_start_tls_encrypts_both_directions(loop: whorl.EventLoop, kind: str) -> None:
    async with clear_connection(loop, kind) as sides:
        (clear, client), (_, server) = sides
        clear.write(b"in the clear")
        assert await server.until_received(12) == b"in the clear"
        ours, theirs = await secure(loop, sides)
        assert ours is not clear
        ours.write(b", in TLS")
        assert await server.until_received(20) == b"in the clear, in TLS"
        theirs.write(b"answer")
        assert await client.until_received(6) == b"answer"
        assert ours.get_extra_info("cipher") is not None


async def test_connection_made_is_not_called_again(loop: whorl.EventLoop) -> None:
    async with clear_connection(loop, "tcp") as sides:
        await secure(loop, sides)
        assert sides[0][1].calls.count("connection_made") == 1
        assert sides[1][1].calls.count("connection_made") == 1


async def test_start_tls_transfers_much_data(loop: whorl.EventLoop) -> None:
    data = noise(2_000_000)
    async with clear_connection(loop, "tcp") as sides:
        ours, _ = await secure(loop, sides)
        ours.write(data)
        assert digest(await sides[1][1].until_received(len(data))) == digest(data)


async def test_the_end_reaches_the_other_side(loop: whorl.EventLoop) -> None:
    async with clear_connection(loop, "tcp") as sides:
        ours, _ = await secure(loop, sides)
        ours.close()
        assert await sides[1][1].until_lost() is None
        assert await sides[0][1].until_lost() is None


async def test_a_handshake_that_fails_closes_the_transport(loop: whorl.EventLoop) -> None:
    async with clear_connection(loop, "tcp") as sides:
        (client, client_protocol), (server, _) = sides
        server.write(b"this is no TLS\n")
        with pytest.raises(ssl.SSLError):
            await loop.start_tls(client, client_protocol, client_context(), server_hostname="localhost")
        assert client.is_closing()


@pytest.mark.exact("a reset may end what the other side has not read")
async def test_failed_start_tls_leaves_no_reference_cycle(loop: whorl.EventLoop) -> None:
    # The protocol keeps the error it was told of, whose traceback must not keep the protocol.
    ours, theirs = socket_pair("tcp")
    sides = [await loop.connect_accepted_socket(Recorder, sock) for sock in (ours, theirs)]
    made = [weakref.ref(thing) for side in sides for thing in side]
    gc.collect()
    gc.disable()
    try:
        errors = await asyncio.gather(
            loop.start_tls(*sides[0], distrustful_context(), server_hostname="localhost"),
            loop.start_tls(*sides[1], server_context(), server_side=True),
            return_exceptions=True,
        )
        assert isinstance(errors[0], ssl.SSLCertVerificationError)
        assert isinstance(errors[1], OSError)
        await sides[0][1].until_lost()
        await sides[1][1].until_lost()
        del sides, errors
        async with asyncio.timeout(10):
            while any(thing() for thing in made):
                await asyncio.sleep(0.001)
    finally:
        gc.enable()


async def test_a_handshake_that_takes_too_long_is_an_error(loop: whorl.EventLoop) -> None:
    async with clear_connection(loop, "tcp") as sides:
        client, client_protocol = sides[0]
        with pytest.raises(ConnectionAbortedError, match="SSL handshake is taking longer than"):
            await loop.start_tls(
                client,
                client_protocol,
                client_context(),
                server_hostname="localhost",
                ssl_handshake_timeout=0.01,
            )


async def test_a_cancelled_upgrade_closes_the_transport(loop: whorl.EventLoop) -> None:
    async with clear_connection(loop, "tcp") as sides:
        client, client_protocol = sides[0]
        task = loop.create_task(
            loop.start_tls(client, client_protocol, client_context(), server_hostname="localhost")
        )
        await turns(3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert client.is_closing()


@pytest.mark.skipif(not hasattr(asyncio.StreamWriter, "start_tls"), reason="new in Python 3.11")
async def test_a_stream_server_upgrades_although_the_client_was_quick(loop: whorl.EventLoop) -> None:
    done: asyncio.Future[bytes] = loop.create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"STARTTLS\n"
        await turns(20)  # The client's handshake has arrived in the reader by now.
        await writer.start_tls(server_context())
        line = await reader.readline()
        writer.close()
        await writer.wait_closed()
        done.set_result(line)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"STARTTLS\n")
    await writer.start_tls(client_context(), server_hostname="localhost")
    writer.write(b"in TLS\n")
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    assert await done == b"in TLS\n"
    server.close()


# Refusals.

REFUSED: dict[str, Callable[[Any, Any], Awaitable[Any]]] = {
    "no context": lambda loop, transport: loop.start_tls(transport, Recorder(), None),
    "a context that is a bool": lambda loop, transport: loop.start_tls(transport, Recorder(), True),
    "a transport of no known kind": lambda loop, transport: loop.start_tls(
        None, Recorder(), server_context(), server_side=True
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_error_asyncio_gives(name: str) -> None:
    async def upgrade(loop: Any) -> None:
        ours, peer = socket.socketpair()
        with peer:
            transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
            try:
                await REFUSED[name](loop, transport)
            finally:
                transport.abort()
                await turns(3)

    assert error_as_in_asyncio(upgrade)[0] is TypeError
