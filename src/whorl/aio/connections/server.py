"""Servers: sockets that listen, and the connections they accept."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from asyncio import trsock
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from whorl.aio.connections.acceptor import Acceptor
from whorl.aio.connections.arguments import (
    check_host_or_socket,
    check_path_or_socket,
    check_server_context,
    check_tls_timeouts,
)
from whorl.aio.connections.bind import bind_hosts, bind_path, path_of, remove_path
from whorl.aio.interop import at_import
from whorl.aio.interop.at_import import logger
from whorl.aio.streams.server_protocol import fast_server_protocol_factory
from whorl.aio.transports.connection_set import ConnectionSet
from whorl.core.copying import refuse_copy
from whorl.core.kernel.errors import os_error

if TYPE_CHECKING:
    import ssl as ssl_module

    from whorl.aio.loop_type import AnyLoop

# Since 3.12 (.1), wait_closed waits for the connections too; before, it returned at once.
_WAITS_FOR_CONNECTIONS = sys.version_info >= (3, 12)
# Since 3.14, a cancelled serve_forever closes the connections.
_CLOSES_CONNECTIONS = sys.version_info >= (3, 14)


class Server(at_import.Server):
    """The result of create_server (asyncio: ``asyncio.Server``).

    asyncio's class is the base for the sake of `isinstance` only.
    """

    __reduce__ = refuse_copy

    def __init__(
        self,
        loop: AnyLoop,
        sockets: list[Any],
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        ssl_context: ssl_module.SSLContext | None,
        backlog: int,
        ssl_handshake_timeout: float | None,
        ssl_shutdown_timeout: float | None = None,
    ) -> None:
        self._loop = loop
        self._sockets: list[Any] | None = sockets
        self._protocol_factory = fast_server_protocol_factory(loop, protocol_factory)
        self._ssl_context = ssl_context
        self._backlog = backlog
        self._ssl_handshake_timeout = ssl_handshake_timeout
        self._ssl_shutdown_timeout = ssl_shutdown_timeout
        self._acceptors: list[Acceptor] = []
        self._clients = ConnectionSet()
        self._waiters: list[asyncio.Future[None]] | None = []  # None: closed, and all connections gone
        self._serving = False
        self._serving_forever_fut: asyncio.Future[None] | None = None
        self._context = copy_context()  # each connection gets a copy
        self._path: tuple[str | bytes, int] | None = None  # the UNIX socket to be removed, and its inode

    def __repr__(self) -> str:
        return f"<{type(self).__name__} sockets={self.sockets!r}>"

    @property
    def sockets(self) -> tuple[Any, ...]:
        """The listening sockets."""
        return tuple(trsock.TransportSocket(sock) for sock in self._sockets or ())

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop of the server."""
        return self._loop

    def is_serving(self) -> bool:
        """Return whether connections are accepted."""
        return self._serving

    async def start_serving(self) -> None:
        """Begin to accept connections. Raises TypeError if the server is closed, as asyncio does."""
        if self._sockets is None:
            raise TypeError(f"server {self!r} is closed")
        self._start_serving()
        await asyncio.tasks.sleep(0)

    async def serve_forever(self) -> None:
        """Accept connections until this is cancelled, or the server closed."""
        if self._serving_forever_fut is not None:
            raise RuntimeError(f"server {self!r} is already being awaited on serve_forever()")
        if self._sockets is None:
            raise RuntimeError(f"server {self!r} is closed")
        self._start_serving()
        self._serving_forever_fut = self._loop.create_future()
        try:
            await self._serving_forever_fut
        except asyncio.CancelledError:
            try:
                self.close()
                if _CLOSES_CONNECTIONS:
                    self.close_clients()
                await self.wait_closed()
            finally:
                raise
        finally:
            self._serving_forever_fut = None

    def close(self) -> None:
        """Accept no more connections; the open ones go on."""
        sockets, self._sockets = self._sockets, None
        if sockets is None:
            return
        self._serving = False
        self._clients.is_over = True
        acceptors, self._acceptors = self._acceptors, []
        for acceptor in acceptors:
            acceptor.close()
        for sock in sockets:
            self._loop._kernel.close_socket(sock)
        if self._path is not None:
            remove_path(self._loop, *self._path)
        if self._serving_forever_fut is not None and not self._serving_forever_fut.done():
            self._serving_forever_fut.cancel()
            self._serving_forever_fut = None
        self._wake_if_done()

    def close_clients(self) -> None:
        """Close all connections (3.13)."""
        for transport in self._clients.transports():
            transport.close()

    def abort_clients(self) -> None:
        """Close all connections at once, without sending unsent data (3.13)."""
        for transport in self._clients.transports():
            transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the server is closed and all its connections are gone."""
        if self._waiters is None or (self._sockets is None and not _WAITS_FOR_CONNECTIONS):
            return
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def _attach(self, transport: Any) -> None:
        """Count a connection that begins."""
        assert self._sockets is not None
        self._clients.add(transport)

    def _detach(self, transport: Any) -> None:
        """Count a connection that is over."""
        self._clients.discard(transport)
        if self._sockets is None:
            self._wake_if_done()

    def _wake_if_done(self) -> None:
        if self._sockets is not None or len(self._clients) or self._waiters is None:
            return
        waiters, self._waiters = self._waiters, None
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _start_serving(self) -> None:
        if self._serving or self._sockets is None:
            return
        self._serving = True
        for sock in self._sockets:
            code = self._loop._kernel.listen(sock, self._backlog)
            if code < 0:
                raise os_error(code)
            self._acceptors.append(Acceptor(self._loop, self, sock))


# Servers for hosts.


async def create_server(
    loop: AnyLoop,
    protocol_factory: Callable[[], asyncio.BaseProtocol],
    host: str | Sequence[str] | None = None,
    port: int | str | None = None,
    *,
    family: int = socket.AF_UNSPEC,
    flags: int = socket.AI_PASSIVE,
    sock: Any = None,
    backlog: int = 100,
    ssl: ssl_module.SSLContext | None = None,
    reuse_address: bool | None = None,
    reuse_port: bool | None = None,
    keep_alive: bool | None = None,
    ssl_handshake_timeout: float | None = None,
    ssl_shutdown_timeout: float | None = None,
    start_serving: bool = True,
) -> Server:
    """Return a server on all addresses of the given hosts, or on a socket that is bound already.

    Source: ``asyncio.loop.create_server``.
    """
    check_server_context(ssl)
    check_tls_timeouts(ssl is not None, ssl_handshake_timeout, ssl_shutdown_timeout)
    check_host_or_socket(host, port, sock, "Neither host/port nor sock were specified")
    sockets = [sock]
    if sock is None:
        sockets = await bind_hosts(
            loop,
            host,
            port,
            family,
            flags,
            reuse_address=reuse_address,
            reuse_port=reuse_port,
            keep_alive=keep_alive,
        )
    for each in sockets:
        each.setblocking(False)
    server = Server(
        loop, sockets, protocol_factory, ssl, backlog, ssl_handshake_timeout, ssl_shutdown_timeout
    )
    await _start(server, start_serving)
    if loop._debug:
        logger.info("%r is serving", server)
    return server


async def _start(server: Server, start_serving: bool) -> None:
    """Begin to serve if that is wanted; close the server if that raises."""
    if start_serving:
        try:
            await server.start_serving()
        except BaseException:
            server.close()
            raise


# Servers for UNIX sockets.


async def create_unix_server(
    loop: AnyLoop,
    protocol_factory: Callable[[], asyncio.BaseProtocol],
    path: Any = None,
    *,
    sock: Any = None,
    backlog: int = 100,
    ssl: ssl_module.SSLContext | None = None,
    ssl_handshake_timeout: float | None = None,
    ssl_shutdown_timeout: float | None = None,
    start_serving: bool = True,
    cleanup_socket: bool = sys.version_info >= (3, 13),
    mode: int | None = None,
) -> Server:
    """Return a server on a UNIX socket: a path (text, bytes or a path object), an abstract name, or a socket.

    The socket is removed when the server is closed, unless `cleanup_socket` is false. By default it is kept
    before Python 3.13, as asyncio does. `mode` sets its permissions. Source:
    ``asyncio.loop.create_unix_server``.
    """
    check_server_context(ssl)
    check_tls_timeouts(ssl, ssl_handshake_timeout, ssl_shutdown_timeout)
    check_path_or_socket(path, sock, "path was not specified, and no sock specified")
    if sock is None:
        sock = bind_path(loop, os.fspath(path), mode)
    else:
        sock.setblocking(False)
    server = Server(loop, [sock], protocol_factory, ssl, backlog, ssl_handshake_timeout, ssl_shutdown_timeout)
    if cleanup_socket:
        server._path = path_of(loop, sock)
    await _start(server, start_serving)
    return server
