"""Accepting connections: each gets a protocol and a transport, without a task.

Both are made in the turn after the one that accepts the connection, as on asyncio, where a task does it. A
connection over TLS has this task until its handshake is done: a program may see and cancel it.

If `accept` fails, connections still wait and the event comes again in each turn. So after an error that lasts
the acceptor pauses for a while. It says so once, until it has accepted a connection.
"""

from __future__ import annotations

import errno
import socket
from asyncio import trsock
from typing import TYPE_CHECKING, Any

from whorl.aio.connections.accepted_socket import report_failed_connection, serve, serve_tls
from whorl.aio.interop.stock import is_stock_socket
from whorl.aio.sockets.connect_plain import is_stock_loop
from whorl.aio.sockets.watch import release_fd_for_transport
from whorl.aio.transports.connection_set import ConnectionSet
from whorl.aio.transports.public import SocketTransport
from whorl.aio.transports.stream import StreamTransport
from whorl.core import limits, states
from whorl.core.copying import refuse_copy
from whorl.core.kernel.errors import CONNECTION_ERRORS, os_error
from whorl.core.kernel.sockets import ACCEPTED_FAMILIES
from whorl.core.pollers.contract import IOHandle

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from whorl.aio.connections.accepted_socket import Server
    from whorl.aio.loop_type import AnyLoop, FdTable
    from whorl.core.loop.lifecycle import LoopLifecycle
    from whorl.core.timers.timed_callback import TimedCallback


# Errors of accept(2) after which connections still wait, but resources to accept them are missing.
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
WOULD_BLOCK = (-errno.EAGAIN, -errno.EINTR)

if not cython.compiled:
    from whorl.aio.transports.stream import new

    def is_initialized(acceptor: Any) -> bool:
        """Return whether there are accepted connections to close."""
        return hasattr(acceptor, "_accepted")

    def owned_fd(connection: Any) -> int:
        """Return the descriptor that a connection has to close, or -1."""
        fd: int = getattr(connection, "_fd", -1)
        return fd

    def copy_of(context: Any) -> Any:
        """Return a copy of a context."""
        return context.copy()

    def begin_in_context(
        acceptor: Any, fd: int, accepted: tuple[int, bytes | int, Any], context: Any
    ) -> None:
        """Make a protocol and a transport in a context."""
        context.run(acceptor._begin, fd, accepted, context)


class Acceptor(IOHandle):
    """The acceptor of one listening socket."""

    def __init__(self, loop: AnyLoop, server: Server, sock: Any) -> None:
        IOHandle.__init__(self, loop)
        loop._mark_internal(self)
        self._event_loop = loop
        self._server = server
        self._sock = sock
        self._clients: ConnectionSet = server._clients
        self._table: FdTable = loop._transports
        self._retry_timer: TimedCallback | None = None
        # The connections without a transport yet: descriptors, each with the peer's address and its local
        # name.
        self._accepted: list[tuple[int, bytes | int, Any]] = []
        self._taken = 0  # connections, for the event that is under way
        self._has_failed = False  # and has accepted nothing since
        self._fd = sock.fileno()
        # The family, the protocol number and the name of its connections, if they may do without a socket
        # object. None if they may have others.
        self._kind: tuple[int, int, Any] | None = None
        if loop._kernel.accepts_descriptors:
            if is_stock_socket(sock) and sock.family in ACCEPTED_FAMILIES:
                own_name = loop._kernel.socket_name(sock) if sock.family == socket.AF_UNIX else None
                self._kind = int(sock.family), sock.proto, None if isinstance(own_name, int) else own_name
        loop._poller.add(self, states.READABLE)
        self._activate()

    def _on_events(self, seen: int) -> None:
        if self._accepted:
            self._begin_accepted()
        if not seen or self._handle_state != states.OPEN:
            return
        self._taken = 0
        try:
            self._accept()
        except Exception as error:
            if self._taken or self._handle_state != states.OPEN:
                raise  # It is about the connection that was taken, so it does not come again by itself.
            self._pause_accepting(error)

    def _accept(self) -> None:
        """Accept what waits."""
        kernel = self._event_loop._kernel
        descriptors = self._accepts_descriptors()
        for attempt in range(limits.ACCEPTS_PER_EVENT):
            if attempt == 1 and descriptors and not kernel.may_accept(self._fd):
                return  # A connection mostly comes alone.
            accepted = kernel.accept_descriptor(self._fd) if descriptors else kernel.accept(self._sock)
            if not isinstance(accepted, int):
                self._taken += 1
                self._has_failed = False
                self._loop._figures.counters.accepts += 1
                if descriptors and self._server._ssl_context is not None:
                    serve_tls(self, self._owned(accepted))
                elif descriptors:
                    self._begin_soon(accepted)
                else:
                    serve(self, *accepted)
                if self._handle_state != states.OPEN:
                    return
            elif accepted in WOULD_BLOCK:
                return
            elif -accepted not in CONNECTION_ERRORS:
                self._pause_accepting(os_error(accepted))
                return
            elif accepted != -errno.ECONNABORTED:
                self._report(os_error(accepted))
                if self._handle_state != states.OPEN:
                    return
        if not self._taken:
            self._pause_accepting(os_error(accepted))

    def _accepts_descriptors(self) -> bool:
        """Return whether a connection needs no socket object.

        It needs none if no program sees it, and none has replaced the functions that make it.
        """
        return self._kind is not None and is_stock_loop(self._event_loop)

    def _owned(self, accepted: tuple[int, bytes | int, Any]) -> AcceptedConnection:
        """Return an object that closes the accepted descriptor when it is forgotten."""
        try:
            return AcceptedConnection(self, accepted)
        except BaseException:  # There is no memory for it, and no other code knows the descriptor.
            self._event_loop._kernel.close(accepted[0])
            raise

    def _begin_soon(self, accepted: tuple[int, bytes | int, Any]) -> None:
        """Make the protocol and the transport in the next turn."""
        try:
            self._accepted.append(accepted)
        except BaseException:  # There is no memory for it, and no other code knows the descriptor.
            self._event_loop._kernel.close(accepted[0])
            raise
        self._run_again()

    def _run_again(self) -> None:
        """Run again in the next turn, for the connections that were accepted in this one."""
        machine: LoopLifecycle = self._event_loop
        if not self._queued:
            machine._enqueue(self)
            self._queued = True

    def _begin_accepted(self) -> None:
        """Make the protocols and the transports of the connections that were accepted a turn ago."""
        try:
            while self._accepted:
                context = copy_of(self._server._context)  # first: a popped connection must get its transport
                accepted = self._accepted.pop(0)
                begin_in_context(self, accepted[0], accepted, context)
        finally:
            if self._accepted:  # An interrupt leaves the other connections in place.
                self._run_again()

    def _begin(self, fd: int, accepted: tuple[int, bytes | int, Any], context: Any) -> None:
        """Make the protocol and the transport of a connection without a socket object."""
        loop = self._event_loop
        protocol: Any = None
        made: StreamTransport | None = None
        try:
            protocol = self._server._protocol_factory()
            if self._handle_state != states.OPEN:  # The factory closed the server.
                loop._kernel.close(fd)
                return
            made = self._transport_over(fd, accepted, protocol, context)
            made._register_with_server(self._server, self._clients)
        except BaseException as error:
            if made is None:
                loop._kernel.close(fd)
            else:
                made.close()
            report_failed_connection(loop, error, protocol, made)

    def _transport_over(
        self, fd: int, accepted: tuple[int, bytes | int, Any], protocol: Any, context: Any
    ) -> StreamTransport:
        """Return a transport over an accepted descriptor, which is the caller's if this raises."""
        loop = self._event_loop
        machine: LoopLifecycle = loop
        if machine._poller.find(fd) is not None or self._table.get(fd) is not None:
            release_fd_for_transport(loop, fd)
        transport: StreamTransport = new(SocketTransport)
        transport._init_connected(loop, fd, self._kind, accepted, protocol, context, None, None)  # type: ignore[arg-type]
        return transport

    def _pause_accepting(self, error: Exception) -> None:
        """Try again later, and report the error."""
        if self._retry_timer is None:
            self._retry_timer = self._event_loop.call_later(limits.ACCEPT_RETRY_DELAY_NS / 1e9, self._resume)
        self._event_loop._poller.remove(self)
        self._report(error)

    def _report(self, error: Exception) -> None:
        """Report an error, the first since a connection was accepted."""
        if self._has_failed:
            return
        self._has_failed = True
        is_exhausted = isinstance(error, OSError) and error.errno in EXHAUSTED
        self._event_loop.call_exception_handler(
            {
                "message": "socket.accept() " + ("out of system resource" if is_exhausted else "failed"),
                "exception": error,
                "socket": trsock.TransportSocket(self._sock),
            }
        )

    def _resume(self) -> None:
        self._retry_timer = None
        if self.is_closing():
            return
        refusal = None
        try:
            self._event_loop._poller.add(self, states.READABLE)
        except OSError as error:
            refusal = error
        if refusal is not None:  # The kernel has no room for the watch yet.
            self._pause_accepting(refusal)

    def _release(self) -> None:
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        self._event_loop._poller.remove(self)
        self._fd = -1
        self._close_accepted()

    def _close_accepted(self) -> None:
        """Close the accepted connections that will get no transport."""
        while self._accepted:
            fd, _, _ = self._accepted.pop()
            self._event_loop._kernel.close(fd)

    def __del__(self) -> None:
        if is_initialized(self):
            self._close_accepted()


class AcceptedConnection:
    """An accepted connection that a task will give a protocol; it is closed if the task never does."""

    __reduce__ = refuse_copy

    def __init__(self, acceptor: Acceptor, accepted: tuple[int, bytes | int, Any]) -> None:
        self._fd = accepted[0]
        self._accepted = accepted
        self._acceptor = acceptor  # the last step: from here on it owns the descriptor

    def begin(self, protocol: Any, context: Any) -> None:
        """Make the transport of the connection."""
        acceptor: Acceptor = self._acceptor
        transport: StreamTransport = acceptor._transport_over(self._fd, self._accepted, protocol, context)
        self._fd = -1  # From here on the transport closes it.
        try:
            transport._register_with_server(acceptor._server, acceptor._clients)
        except BaseException:
            transport.abort()
            raise

    def close(self) -> None:
        """Close the connection, unless it has a transport."""
        if owned_fd(self) >= 0:
            fd = self._fd
            self._fd = -1
            self._acceptor._event_loop._kernel.close(fd)

    def __del__(self) -> None:
        self.close()
