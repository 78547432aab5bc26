"""Handshakes that one side refuses: the alert for the other side, and who hears of it."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import whorl
from tests.aio.sockets_for_tests import Recorder, reset, turns
from tests.aio.tls_contexts import (
    CERTIFICATE,
    client_context,
    distrustful_context,
    manual_connection,
    server_context,
)

pytestmark = pytest.mark.usefixtures("no_leak")

exact = pytest.mark.exact("an alert is tried once")

REFUSED = "Error on transport creation for incoming connection"


def asking_context(version: ssl.TLSVersion) -> ssl.SSLContext:
    """Return a server's context that wants a client's certificate."""
    context = server_context()
    context.maximum_version = version
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(CERTIFICATE)
    return context


def choosy_context() -> ssl.SSLContext:
    """Return a server's context that knows no name."""
    context = server_context()
    context.sni_callback = lambda *_: ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
    return context


def new_context() -> ssl.SSLContext:
    """Return a server's context that speaks only TLS 1.3."""
    context = server_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def old_context() -> ssl.SSLContext:
    """Return a client's context that speaks TLS up to 1.2."""
    context = client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


#: The contexts of both sides, the reason that the client learns, and the reason that the server learns.
REFUSALS: dict[str, tuple[Callable[[], Any], Callable[[], Any], str, str]] = {
    "no certificate in TLS 1.2": (
        client_context,
        lambda: asking_context(ssl.TLSVersion.TLSv1_2),
        "SSLV3_ALERT_HANDSHAKE_FAILURE",
        "PEER_DID_NOT_RETURN_A_CERTIFICATE",
    ),
    "no certificate in TLS 1.3": (
        client_context,
        lambda: asking_context(ssl.TLSVersion.TLSv1_3),
        "TLSV13_ALERT_CERTIFICATE_REQUIRED",
        "PEER_DID_NOT_RETURN_A_CERTIFICATE",
    ),
    "an unknown name": (client_context, choosy_context, "TLSV1_UNRECOGNIZED_NAME", "CALLBACK_FAILED"),
    "an old version": (old_context, new_context, "TLSV1_ALERT_PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL"),
    "a client that does not trust": (
        distrustful_context,
        server_context,
        "CERTIFICATE_VERIFY_FAILED",
        "TLSV1_ALERT_UNKNOWN_CA",
    ),
}


@asynccontextmanager
async def serving(loop: Any, context: ssl.SSLContext) -> AsyncIterator[Any]:
    """Serve TLS; give the address."""
    server = await loop.create_server(Recorder, "127.0.0.1", 0, ssl=context)
    yield server.sockets[0].getsockname()
    server.close()
    await server.wait_closed()


async def refusal(loop: Any, address: Any, context: ssl.SSLContext) -> str:
    """Return the reason why a connection is refused, in the handshake or just behind it."""
    client = Recorder()
    try:
        await loop.create_connection(lambda: client, *address, ssl=context, server_hostname="localhost")
        error: Any = await client.until_lost()
    except ssl.SSLError as failure:
        error = failure
    assert isinstance(error, ssl.SSLError)
    return str(error.reason)


@exact
@pytest.mark.parametrize("name", REFUSALS)
async def test_refusal_tells_the_peer_and_the_exception_handler(loop: whorl.EventLoop, name: str) -> None:
    make_client, make_server, reason, own_reason = REFUSALS[name]
    reports: list[Any] = []
    loop.set_exception_handler(lambda loop, context: reports.append(context))
    async with serving(loop, make_server()) as address:
        assert await refusal(loop, address, make_client()) == reason
        while not reports:
            await asyncio.sleep(0)
    (report,) = reports
    assert report["message"] == REFUSED
    assert own_reason in str(report["exception"]) or own_reason == "CALLBACK_FAILED"
    assert {"transport", "protocol"} <= report.keys()
    assert loop.metrics().handshakes_failed == 1 + (name != "no certificate in TLS 1.3")


@exact
async def test_refusal_is_not_logged_without_a_handler(
    loop: whorl.EventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    loop.set_exception_handler(None)
    with caplog.at_level(logging.DEBUG):
        async with serving(loop, server_context()) as address:
            for _ in range(3):
                await refusal(loop, address, distrustful_context())
            while loop.metrics().handshakes_failed < 6:
                await asyncio.sleep(0)
            await turns(3)
    assert not caplog.records


@pytest.mark.parametrize("way", ["close", "reset", "silence"])
async def test_an_end_in_the_handshake_is_no_refusal(loop: whorl.EventLoop, way: str) -> None:
    reports: list[Any] = []
    loop.set_exception_handler(lambda loop, context: reports.append(context))
    async with serving(loop, server_context()) as address:
        _, writer = await asyncio.open_connection(*address)
        if way != "silence":
            writer.write(b"\x16\x03\x01")
        await turns(5)
        if way == "reset":
            reset(writer.get_extra_info("socket")._sock)
        writer.close()
        await turns(10)
    assert reports == []
    assert loop.metrics().handshakes_failed == 0


@exact
async def test_a_broken_record_tells_the_peer(loop: whorl.EventLoop) -> None:
    protocol = Recorder()
    async with manual_connection(loop, protocol) as (_, peer):
        await loop.sock_sendall(peer.sock, b"\x17\x03\x03\x00\x20" + bytes(32))
        assert isinstance(await protocol.until_lost(), ssl.SSLError)
        peer.incoming.write(await loop.sock_recv(peer.sock, 1000))
        with pytest.raises(ssl.SSLError, match="BAD_RECORD_MAC"):
            peer.tls.read(1)
