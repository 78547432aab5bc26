"""TLS over a transport: on new connections, and on connections that send in the clear already."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import TYPE_CHECKING, Any

try:
    import ssl
except ImportError:  # A Python may be built without the `ssl` module.
    ssl = None  # type: ignore[assignment]

from whorl.aio.sockets.watch import ensure_no_transport
from whorl.aio.transports.public import SocketTransport
from whorl.aio.transports.tls import TLSProtocol

if TYPE_CHECKING:
    from ssl import SSLContext

    from whorl.aio.loop_type import AnyLoop


def make_ssl_transport(
    loop: AnyLoop,
    rawsock: Any,
    protocol: asyncio.BaseProtocol,
    sslcontext: Any,
    waiter: asyncio.Future[None] | None = None,
    *,
    server_side: bool = False,
    server_hostname: str | None = None,
    extra: dict[str, Any] | None = None,
    server: Any = None,
    ssl_handshake_timeout: float | None = None,
    ssl_shutdown_timeout: float | None = None,
    context: Context | None = None,
) -> asyncio.Transport:
    """Return a TLS transport over a connected socket; `waiter` is done after the handshake."""
    ensure_no_transport(loop, rawsock)
    tls = TLSProtocol(
        loop,
        protocol,
        sslcontext,
        waiter,
        server_side,
        server_hostname,
        ssl_handshake_timeout=ssl_handshake_timeout,
        ssl_shutdown_timeout=ssl_shutdown_timeout,
    )
    transport: Any = tls._app_transport
    try:
        SocketTransport(loop, rawsock, tls, extra=extra, server=server, context=context)
    except BaseException:
        transport.close()
        raise
    return transport  # type: ignore[no-any-return]


async def start_tls(
    loop: AnyLoop,
    transport: Any,
    protocol: asyncio.BaseProtocol,
    sslcontext: SSLContext,
    *,
    server_side: bool = False,
    server_hostname: str | None = None,
    ssl_handshake_timeout: float | None = None,
    ssl_shutdown_timeout: float | None = None,
) -> asyncio.Transport | None:
    """Begin to speak TLS on a connection; return the transport to be used from then on.

    Source: ``asyncio.loop.start_tls``.
    """
    if ssl is None:
        raise RuntimeError("Python ssl module is not available")
    if not isinstance(sslcontext, ssl.SSLContext):
        raise TypeError(f"sslcontext is expected to be an instance of ssl.SSLContext, got {sslcontext!r}")
    if not getattr(transport, "_start_tls_compatible", False):
        raise TypeError(f"transport {transport!r} is not supported by start_tls()")
    waiter = loop.create_future()
    tls = TLSProtocol(
        loop,
        protocol,
        sslcontext,
        waiter,
        server_side,
        server_hostname,
        ssl_handshake_timeout=ssl_handshake_timeout,
        ssl_shutdown_timeout=ssl_shutdown_timeout,
        call_connection_made=False,
    )
    transport.pause_reading()  # No data may come before the TLS protocol knows its transport.
    transport.set_protocol(tls)
    if server_side:
        _move_stream_data(protocol, tls)
    connected = loop.call_soon(tls.connection_made, transport)
    resumed = loop.call_soon(transport.resume_reading)
    try:
        await waiter
        secured: Any = tls._app_transport
        return secured  # type: ignore[no-any-return]
    except BaseException:
        transport.close()
        connected.cancel()
        resumed.cancel()
        raise
    finally:
        # The error must not keep alive the objects that keep the error: the protocol gets it, too.
        del waiter, transport, protocol, tls, connected, resumed


def _move_stream_data(protocol: asyncio.BaseProtocol, tls: TLSProtocol) -> None:
    """Move the unread data of a stream reader to the handshake, to which it belongs."""
    if not isinstance(protocol, asyncio.StreamReaderProtocol):
        return
    buffer = getattr(getattr(protocol, "_stream_reader", None), "_buffer", None)
    if buffer:
        tls._record_reader.stop()
        tls._incoming.write(buffer)
        buffer.clear()
