"""Servers: sockets that listen, and the connections they accept."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import sys
import weakref
from asyncio import trsock
from asyncio.log import logger
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

from whorl.aio.connect import bind_error, check_plain_socket, check_tls_timeouts, check_unix_socket
from whorl.aio.dns import AddressInfo, ensure_resolved
from whorl.core.handle import os_error
from whorl.core.limits import ACCEPT_REST_NS, ACCEPTS_PER_EVENT
from whorl.core.poller import IOHandle
from whorl.core.states import Event

if TYPE_CHECKING:
    import ssl as ssl_module

    from whorl.aio.loop import EventLoop
    from whorl.core.timer import TimedCallback

READABLE = int(Event.READABLE)

# Errors of accept(2) after which there is something to accept still, but nothing to accept it with.
_EXHAUSTED = (-errno.EMFILE, -errno.ENFILE, -errno.ENOBUFS, -errno.ENOMEM)
_NOTHING_THERE = (-errno.EAGAIN, -errno.EINTR)

# Since 3.12 (.1), wait_closed waits for the connections too; before, it returned at once.
_WAITS_FOR_CONNECTIONS = sys.version_info >= (3, 12)
# Before 3.13, an address that this machine does not have was an error of its own.
_NAMES_ABSENT_ADDRESS = sys.version_info < (3, 13)
# Since 3.14, a cancelled serve_forever closes the connections.
_CLOSES_CONNECTIONS = sys.version_info >= (3, 14)


class Server(asyncio.Server):
    """What create_server gives (asyncio: ``asyncio.Server``).

    asyncio's own class is the base for the sake of `isinstance` only.
    """

    def __init__(
        self,
        loop: EventLoop,
        sockets: list[Any],
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        ssl_context: ssl_module.SSLContext | None,
        backlog: int,
        ssl_handshake_timeout: float | None,
        ssl_shutdown_timeout: float | None = None,
    ) -> None:
        self._loop = loop
        self._sockets: list[Any] | None = sockets
        self._protocol_factory = protocol_factory
        self._ssl_context = ssl_context
        self._backlog = backlog
        self._ssl_handshake_timeout = ssl_handshake_timeout
        self._ssl_shutdown_timeout = ssl_shutdown_timeout
        self._acceptors: list[Acceptor] = []
        # Weak, so that a transport nobody refers to any more still complains that it was not closed.
        self._clients: weakref.WeakSet[Any] = weakref.WeakSet()
        self._waiters: list[asyncio.Future[None]] | None = []  # None: closed, and all connections gone
        self._serving = False
        self._serving_forever_fut: asyncio.Future[None] | None = None
        self._context = copy_context()  # each connection gets a copy
        self._paths: list[tuple[str | bytes, int]] = []  # UNIX sockets to be removed, and their inodes

    def __repr__(self) -> str:
        return f"<{type(self).__name__} sockets={self.sockets!r}>"

    @property
    def sockets(self) -> tuple[Any, ...]:
        """The listening sockets."""
        return tuple(trsock.TransportSocket(sock) for sock in self._sockets or ())

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop it belongs to."""
        return self._loop

    def is_serving(self) -> bool:
        """Whether connections are accepted."""
        return self._serving

    async def start_serving(self) -> None:
        """Begin to accept connections."""
        self._start_serving()
        await asyncio.sleep(0)

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
        """Accept no more connections; those that there are go on."""
        sockets, self._sockets = self._sockets, None
        if sockets is None:
            return
        self._serving = False
        for acceptor in self._acceptors:
            acceptor.close()
        for sock in sockets:
            self._loop._kernel.close_socket(sock)
        self._remove_paths()
        if self._serving_forever_fut is not None and not self._serving_forever_fut.done():
            self._serving_forever_fut.cancel()
            self._serving_forever_fut = None
        self._wake_if_done()

    def close_clients(self) -> None:
        """Close all connections (3.13)."""
        for transport in self._clients.copy():
            transport.close()

    def abort_clients(self) -> None:
        """Close all connections at once, without sending what is unsent (3.13)."""
        for transport in self._clients.copy():
            transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the server is closed and all its connections are gone."""
        if self._waiters is None or (self._sockets is None and not _WAITS_FOR_CONNECTIONS):
            return
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()
        await self.wait_closed()

    def _attach(self, transport: Any) -> None:
        """A connection begins."""
        assert self._sockets is not None
        self._clients.add(transport)

    def _detach(self, transport: Any) -> None:
        """A connection is over."""
        self._clients.discard(transport)
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

    def _remove_paths(self) -> None:
        """Remove the UNIX sockets, unless something else took their places."""
        kernel = self._loop._kernel
        for path, inode in self._paths:
            found = kernel.path_status(path)
            if isinstance(found, int):
                result = found
            else:
                result = kernel.unlink(path) if found[1] == inode else 0
            if result < 0 and result != -errno.ENOENT:
                logger.error("Unable to clean up listening UNIX socket %r: %r", path, os_error(result))


class Acceptor(IOHandle):
    """Accepts the connections of one listening socket."""

    def __init__(self, loop: EventLoop, server: Server, sock: Any) -> None:
        super().__init__(loop)
        loop._hide(self)
        self._face = loop
        self._server = server
        self._sock = sock
        self._rest: TimedCallback | None = None
        self._fd = sock.fileno()
        loop._poller.add(self, READABLE)

    def _on_events(self, seen: int) -> None:
        for _ in range(ACCEPTS_PER_EVENT):
            accepted = self._face._kernel.accept(self._sock)
            if not isinstance(accepted, int):
                self._serve(*accepted)
                if self.is_closing():
                    return
            elif accepted in _NOTHING_THERE:
                return
            elif accepted in _EXHAUSTED:
                self._take_a_rest(os_error(accepted))
                return
            elif accepted != -errno.ECONNABORTED:
                raise os_error(accepted)

    def _serve(self, connection: Any, address: Any) -> None:
        """A connection: make its protocol and its transport, in a context of its own."""
        loop, server = self._face, self._server
        if loop._debug:
            logger.debug("%r got a new connection from %r: %r", server, address, connection)
        context = server._context.copy()
        if server._ssl_context is None:
            context.run(self._make_transport, connection, address, context)
        else:
            loop.create_task(self._make_tls_transport(connection, address, context), context=context)

    def _make_transport(self, connection: Any, address: Any, context: Context) -> None:
        protocol = transport = None
        try:
            protocol = self._server._protocol_factory()
            if self.is_closing():  # The factory closed the server.
                self._face._kernel.close_socket(connection)
                return
            transport = self._face._make_socket_transport(
                connection, protocol, extra={"peername": address}, server=self._server, context=context
            )
        except BaseException as error:
            self._connection_failed(error, connection, protocol, transport)

    async def _make_tls_transport(self, connection: Any, address: Any, context: Context) -> None:
        loop, server = self._face, self._server
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
            self._connection_failed(error, connection, protocol, transport)

    def _connection_failed(
        self, error: BaseException, connection: Any, protocol: Any, transport: Any
    ) -> None:
        """A connection got no protocol, no transport or no TLS: close it, and say so in debug mode."""
        if transport is None:
            self._face._kernel.close_socket(connection)
        else:
            transport.close()
        if isinstance(error, SystemExit | KeyboardInterrupt):
            raise error
        if self._face._debug:
            known = {"protocol": protocol, "transport": transport}
            self._face.call_exception_handler(
                {
                    "message": "Error on transport creation for incoming connection",
                    "exception": error,
                    **{key: value for key, value in known.items() if value is not None},
                }
            )

    def _take_a_rest(self, error: OSError) -> None:
        """Descriptors or memory ran out: say so, and try again later."""
        self._face._poller.remove(self)
        self._rest = self._face.call_later(ACCEPT_REST_NS / 1e9, self._resume)
        self._face.call_exception_handler(
            {
                "message": "socket.accept() out of system resource",
                "exception": error,
                "socket": trsock.TransportSocket(self._sock),
            }
        )

    def _resume(self) -> None:
        self._rest = None
        if not self.is_closing():
            self._face._poller.add(self, READABLE)

    def _release(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
        self._face._poller.remove(self)
        self._fd = -1


# Servers for hosts.


async def create_server(
    loop: EventLoop,
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
    """A server on all addresses of the given hosts, or on a socket that is bound already.

    Source: ``asyncio.loop.create_server``.
    """
    _check_server_options(ssl, ssl_handshake_timeout, ssl_shutdown_timeout)
    if sock is not None:
        check_plain_socket(sock)
    if host is not None or port is not None:
        if sock is not None:
            raise ValueError("host/port and sock can not be specified at the same time")
        infos = await _resolve_hosts(loop, host, port, family, flags)
        options = _options(reuse_address, reuse_port, keep_alive)
        sockets = _bind_all(loop, infos, options, bool(reuse_port))
    else:
        if sock is None:
            raise ValueError("Neither host/port nor sock were specified")
        if sock.type != socket.SOCK_STREAM:
            raise ValueError(f"A Stream Socket was expected, got {sock!r}")
        sockets = [sock]
    for each in sockets:
        each.setblocking(False)
    server = Server(
        loop, sockets, protocol_factory, ssl, backlog, ssl_handshake_timeout, ssl_shutdown_timeout
    )
    await _start(server, start_serving)
    if loop._debug:
        logger.info("%r is serving", server)
    return server


def _check_server_options(ssl: Any, handshake_timeout: float | None, shutdown_timeout: float | None) -> None:
    if isinstance(ssl, bool):
        raise TypeError("ssl argument must be an SSLContext or None")
    check_tls_timeouts(ssl is not None, handshake_timeout, shutdown_timeout)


async def _start(server: Server, start_serving: bool) -> None:
    if start_serving:
        try:
            server._start_serving()
        except BaseException:
            server.close()
            raise
        await asyncio.sleep(0)


async def _resolve_hosts(loop: EventLoop, host: Any, port: Any, family: int, flags: int) -> list[AddressInfo]:
    """The addresses of one host or several, each once."""
    hosts: Iterable[Any]
    if host == "":
        hosts = [None]
    elif isinstance(host, str) or not isinstance(host, Iterable):
        hosts = [host]
    else:
        hosts = host
    found = await asyncio.gather(*(_resolve_host(loop, each, port, family, flags) for each in hosts))
    return list(dict.fromkeys(info for infos in found for info in infos))


async def _resolve_host(loop: EventLoop, host: Any, port: Any, family: int, flags: int) -> list[AddressInfo]:
    infos = await ensure_resolved(loop, (host, port), family=family, flags=flags)
    if not infos:
        raise OSError(f"getaddrinfo({host!r}) returned empty list")
    return infos


def _options(
    reuse_address: bool | None, reuse_port: bool | None, keep_alive: bool | None
) -> list[tuple[int, int, int]]:
    """The socket options of a listening socket."""
    options = []
    if reuse_address or (reuse_address is None and os.name == "posix" and sys.platform != "cygwin"):
        options.append((socket.SOL_SOCKET, socket.SO_REUSEADDR, 1))
    if reuse_port and not hasattr(socket, "SO_REUSEPORT"):
        raise ValueError("reuse_port not supported by socket module")
    if keep_alive:
        options.append((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1))
    return options


def _bind_all(
    loop: EventLoop, infos: list[AddressInfo], options: list[tuple[int, int, int]], reuse_port: bool
) -> list[Any]:
    """A bound socket for each address, but those of families that this machine does not have."""
    sockets: list[Any] = []
    absent: OSError | None = None
    try:
        for info in infos:
            sock = _open(loop, info)
            if sock is None:
                continue
            sockets.append(sock)
            _configure(loop, sock, info[0], options, reuse_port)
            result = loop._kernel.bind(sock, info[4])
            if result == -errno.EADDRNOTAVAIL:
                # IPv6 may be compiled in and turned off.
                absent = bind_error(result, info[4])
                loop._kernel.close_socket(sockets.pop())
                if loop._debug:
                    logger.warning("%s", absent)
            elif result < 0:
                raise bind_error(result, info[4])
        if not sockets:
            if absent is not None and _NAMES_ABSENT_ADDRESS:
                raise absent
            raise OSError(f"could not bind on any address out of {[info[4] for info in infos]!r}")
    except BaseException:
        for sock in sockets:
            loop._kernel.close_socket(sock)
        raise
    return sockets


def _open(loop: EventLoop, info: AddressInfo) -> Any:
    """A socket for an address, or None if there are no sockets of its kind."""
    family, kind, protocol = info[:3]
    sock = loop._kernel.open_socket(family, kind, protocol)
    if not isinstance(sock, int):
        return sock
    if loop._debug:
        logger.warning(
            "create_server() failed to create socket.socket(%r, %r, %r): %s",
            family,
            kind,
            protocol,
            os_error(sock),
        )
    return None


def _configure(
    loop: EventLoop, sock: Any, family: int, options: list[tuple[int, int, int]], reuse_port: bool
) -> None:
    kernel = loop._kernel
    for level, name, value in options:
        _require(kernel.set_option(sock, level, name, value))
    if reuse_port and kernel.set_option(sock, socket.SOL_SOCKET, socket.SO_REUSEPORT, 1) < 0:
        raise ValueError(
            "reuse_port not supported by socket module, SO_REUSEPORT defined but not implemented."
        )
    if family == socket.AF_INET6:
        # The IPv4 address has a socket of its own.
        _require(kernel.set_option(sock, socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1))


def _require(result: int) -> None:
    if result < 0:
        raise os_error(result)


# Servers for UNIX sockets.


async def create_unix_server(
    loop: EventLoop,
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
    """A server on a UNIX socket: a path (text, bytes or a path object), an abstract name, or a socket.

    The socket is removed when the server is closed, unless `cleanup_socket` is false; by default it
    is kept before Python 3.13, as asyncio does. `mode` sets its permissions. Source:
    ``asyncio.loop.create_unix_server``.
    """
    _check_server_options(ssl, ssl_handshake_timeout, ssl_shutdown_timeout)
    if path is not None:
        if sock is not None:
            raise ValueError("path and sock can not be specified at the same time")
        path = os.fspath(path)
        sock = _bind_path(loop, path, mode)
    else:
        if sock is None:
            raise ValueError("path was not specified, and no sock specified")
        check_unix_socket(sock)
        sock.setblocking(False)
    server = Server(loop, [sock], protocol_factory, ssl, backlog, ssl_handshake_timeout, ssl_shutdown_timeout)
    if cleanup_socket:
        _note_path(loop, server, sock)
    await _start(server, start_serving)
    return server


def _is_abstract(path: str | bytes) -> bool:
    return path[:1] in ("", b"", "\0", b"\0")


def _bind_path(loop: EventLoop, path: str | bytes, mode: int | None) -> Any:
    """A socket at a path, in the place of what an earlier server left there."""
    kernel = loop._kernel
    sock = kernel.open_socket(socket.AF_UNIX, socket.SOCK_STREAM, 0)
    if isinstance(sock, int):
        raise os_error(sock)
    try:
        if not _is_abstract(path):
            _remove_stale(loop, path)
        result = kernel.bind(sock, path)
        if result == -errno.EADDRINUSE:
            raise OSError(errno.EADDRINUSE, f"Address {path!r} is already in use")
        _require(result)
        if mode is not None and not _is_abstract(path):
            _require(kernel.change_mode(path, mode))
    except BaseException:
        kernel.close_socket(sock)
        raise
    return sock


def _remove_stale(loop: EventLoop, path: str | bytes) -> None:
    found = loop._kernel.path_status(path)
    if isinstance(found, int):
        result = found
    else:
        result = loop._kernel.unlink(path) if stat.S_ISSOCK(found[0]) else 0
    if result < 0 and result != -errno.ENOENT:
        # The bind may work all the same, in a directory that only lets us make files.
        logger.error("Unable to check or remove stale UNIX socket %r: %r", path, os_error(result))


def _note_path(loop: EventLoop, server: Server, sock: Any) -> None:
    """Let the server remove its socket when it is closed."""
    path = loop._kernel.socket_name(sock)
    if isinstance(path, str | bytes) and not _is_abstract(path):
        found = loop._kernel.path_status(path)
        if not isinstance(found, int):
            server._paths.append((path, found[1]))
