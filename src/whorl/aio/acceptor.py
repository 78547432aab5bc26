"""Accepting connections: each gets a protocol and a transport, without a task."""

from __future__ import annotations

import errno
import socket
from asyncio import trsock
from asyncio.log import logger
from contextvars import Context
from typing import TYPE_CHECKING, Any

from whorl.aio.connect import make_socket_transport
from whorl.aio.descriptors import make_room
from whorl.aio.transports import SocketTransport
from whorl.aio.unchanged import Unchanged
from whorl.core.handle import os_error
from whorl.core.kernel import ACCEPTED_FAMILIES
from whorl.core.limits import ACCEPT_REST_NS, ACCEPTS_PER_EVENT
from whorl.core.poller import IOHandle
from whorl.core.states import Event

if TYPE_CHECKING:
    from whorl.aio.loop import EventLoop
    from whorl.aio.servers import Server
    from whorl.core.timer import TimedCallback

READABLE = int(Event.READABLE)

# As they were when this module was imported: whoever replaces them is asked.
_Socket = socket.socket
_METHODS = Unchanged(
    [(_Socket, name, getattr(_Socket, name)) for name in ("accept", "recv", "recv_into", "send", "sendmsg")]
)

# Errors of accept(2) after which there is something to accept still, but nothing to accept it with.
_EXHAUSTED = (-errno.EMFILE, -errno.ENFILE, -errno.ENOBUFS, -errno.ENOMEM)
_NOTHING_THERE = (-errno.EAGAIN, -errno.EINTR)


class Acceptor(IOHandle):
    """Accepts the connections of one listening socket."""

    __slots__ = ("_exhausted", "_face", "_kind", "_rest", "_server", "_sock")

    def __init__(self, loop: EventLoop, server: Server, sock: Any) -> None:
        super().__init__(loop)
        loop._hide(self)
        self._face = loop
        self._server = server
        self._sock = sock
        self._rest: TimedCallback | None = None
        self._exhausted = False  # whether resources ran out, and nothing was accepted since
        self._fd = sock.fileno()
        # The family and the protocol number, if a connection may do without a socket object.
        self._kind: tuple[int, int] | None = None
        if server._ssl_context is None and loop._kernel.accepts_descriptors:
            if type(sock) is _Socket and sock.family in ACCEPTED_FAMILIES:
                self._kind = int(sock.family), sock.proto
        loop._poller.add(self, READABLE)
        self._activate()

    def _on_events(self, seen: int) -> None:
        kernel = self._face._kernel
        descriptors = self._accepts_descriptors()
        for _ in range(ACCEPTS_PER_EVENT):
            accepted = kernel.accept_descriptor(self._fd) if descriptors else kernel.accept(self._sock)
            if not isinstance(accepted, int):
                self._exhausted = False
                if descriptors:
                    self._serve_descriptor(*accepted)
                else:
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

    def _accepts_descriptors(self) -> bool:
        """Whether a connection needs no socket object: nobody sees one or has replaced what makes it."""
        loop = self._face
        return (
            self._kind is not None
            and not loop._debug
            and socket.socket is _Socket
            and _METHODS.holds()
            and getattr(loop._make_socket_transport, "__func__", None) is make_socket_transport
        )

    def _serve_descriptor(self, fd: int, peer: bytes, own_name: Any) -> None:
        """A connection without a socket object: make its protocol and its transport."""
        context = self._server._context.copy()
        context.run(self._make_transport_of_descriptor, fd, (peer, own_name), context)

    def _make_transport_of_descriptor(self, fd: int, names: tuple[bytes, Any], context: Context) -> None:
        loop = self._face
        protocol = transport = None
        try:
            protocol = self._server._protocol_factory()
            if self.is_closing():  # The factory closed the server.
                loop._kernel.close(fd)
                return
            make_room(loop, fd)
            transport = SocketTransport(
                loop, fd, protocol, server=self._server, context=context, kind=self._kind, names=names
            )
        except BaseException as error:
            self._connection_failed(error, fd, protocol, transport)

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
        if transport is not None:
            transport.close()
        elif isinstance(connection, int):
            self._face._kernel.close(connection)
        else:
            self._face._kernel.close_socket(connection)
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
        """Descriptors or memory ran out: say so once, and try again later."""
        self._face._poller.remove(self)
        self._rest = self._face.call_later(ACCEPT_REST_NS / 1e9, self._resume)
        if self._exhausted:
            return
        self._exhausted = True
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
