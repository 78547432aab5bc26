"""Accepted connections that have a socket object, and those that failed."""

from __future__ import annotations

from contextvars import Context
from typing import TYPE_CHECKING, Any

try:
    import ssl
except ImportError:  # A Python may be built without the `ssl` module.
    ssl = None  # type: ignore[assignment]

from whorl.aio.interop.at_import import logger
from whorl.aio.transports.tls import TLSProtocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from ssl import SSLContext
    from typing import Protocol

    from whorl.aio.loop_type import AnyLoop
    from whorl.aio.transports.connection_set import ConnectionSet

    class Server(Protocol):
        """A server, as the code that accepts its connections sees it."""

        _clients: ConnectionSet
        _context: Context  # each connection gets a copy
        _protocol_factory: Callable[[], asyncio.BaseProtocol]
        _ssl_context: SSLContext | None
        _ssl_handshake_timeout: float | None
        _ssl_shutdown_timeout: float | None

    class Acceptor(Protocol):
        """An object that accepts connections for a server."""

        _event_loop: AnyLoop
        _server: Server

        def is_closing(self) -> bool: ...


def serve(acceptor: Acceptor, connection: Any, address: Any) -> None:
    """Make the protocol and the transport of a connection, in a context for this connection."""
    loop, server = acceptor._event_loop, acceptor._server
    if loop._debug:
        logger.debug("%r got a new connection from %r: %r", server, address, connection)
    context = server._context.copy()
    if server._ssl_context is None:
        loop.call_soon(_make_transport, acceptor, connection, address, context, context=context)
    else:
        loop.create_task(_make_tls_transport(acceptor, connection, address, context), context=context)


def _make_transport(acceptor: Acceptor, connection: Any, address: Any, context: Context) -> None:
    loop, server = acceptor._event_loop, acceptor._server
    protocol = transport = None
    if acceptor.is_closing():
        loop._kernel.close_socket(connection)
        return
    try:
        protocol = server._protocol_factory()
        if acceptor.is_closing():  # The factory closed the server.
            loop._kernel.close_socket(connection)
            return
        transport = loop._make_socket_transport(
            connection, protocol, extra={"peername": address}, server=server, context=context
        )
    except BaseException as error:
        connection_failed(loop, error, connection, protocol, transport)


async def _make_tls_transport(acceptor: Acceptor, connection: Any, address: Any, context: Context) -> None:
    loop, server = acceptor._event_loop, acceptor._server
    protocol = transport = None
    try:
        protocol = server._protocol_factory()
        waiter = loop.create_future()
        transport = loop._make_ssl_transport(
            connection,
            protocol,
            server._ssl_context,
            waiter,
            server_side=True,
            extra={"peername": address},
            server=server,
            ssl_handshake_timeout=server._ssl_handshake_timeout,
            ssl_shutdown_timeout=server._ssl_shutdown_timeout,
            context=context,
        )
        try:
            await waiter
        finally:
            del waiter  # Its exception must not keep the protocol alive.
    except BaseException as error:
        connection_failed(loop, error, connection, protocol, transport)


def serve_tls(acceptor: Acceptor, connection: Any) -> None:
    """Do the same for a TLS connection that has a descriptor, and no socket object."""
    loop, context = acceptor._event_loop, acceptor._server._context.copy()
    loop.create_task(_begin_tls(acceptor, connection, context), context=context)


async def _begin_tls(acceptor: Acceptor, connection: Any, context: Context) -> None:
    loop, server = acceptor._event_loop, acceptor._server
    protocol = transport = None
    try:
        protocol = server._protocol_factory()
        if acceptor.is_closing():  # The server was closed since it accepted the connection.
            connection.close()
            return
        waiter = loop.create_future()
        tls = TLSProtocol(
            loop,
            protocol,
            server._ssl_context,
            waiter,
            True,
            None,
            True,
            server._ssl_handshake_timeout,
            server._ssl_shutdown_timeout,
        )
        transport = tls._app_transport
        connection.begin(tls, context)
        try:
            await waiter
        finally:
            del waiter, tls  # An exception must not keep the protocol alive.
    except BaseException as error:
        connection.close()
        if transport is not None:
            transport.close()
        report_failed_connection(loop, error, protocol, transport)


def connection_failed(
    loop: Any, error: BaseException, connection: Any, protocol: Any, transport: Any
) -> None:
    """Close a connection that got no protocol, no transport or no TLS, and log it in debug mode."""
    if transport is not None:
        transport.close()
    else:
        loop._kernel.close_socket(connection)
    report_failed_connection(loop, error, protocol, transport)


def report_failed_connection(loop: Any, error: BaseException, protocol: Any, transport: Any) -> None:
    """Log in debug mode that a connection failed, which was closed; raise the errors that end the program.

    Of a refused TLS handshake, an exception handler of the program's hears in any mode. The default one does
    not, as anybody who looks for open ports could fill the log.
    """
    if isinstance(error, SystemExit | KeyboardInterrupt):
        raise error
    is_refusal = ssl is not None and isinstance(error, ssl.SSLError)
    if loop._debug or (is_refusal and loop.get_exception_handler() is not None):
        known = {"protocol": protocol, "transport": transport}
        loop.call_exception_handler(
            {
                "message": "Error on transport creation for incoming connection",
                "exception": error,
                **{key: value for key, value in known.items() if value is not None},
            }
        )
