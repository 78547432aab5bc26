"""Accepting connections: each gets a protocol and a transport, without a task.

Both are made in the turn after the one that accepts the connection, as on asyncio, where a task does it.
"""

from __future__ import annotations

import errno
import socket
from asyncio import trsock
from typing import TYPE_CHECKING, Any

from whorl.aio.connections.accepted_socket import say_failed, serve
from whorl.aio.connections.connect import make_socket_transport
from whorl.aio.interop.stock import has_stock_sockets, is_stock_socket
from whorl.aio.sockets.watch import release_fd_for_transport
from whorl.aio.transports.connection_set import ConnectionSet
from whorl.aio.transports.public import SocketTransport
from whorl.aio.transports.stream import StreamTransport
from whorl.core.kernel.errors import os_error
from whorl.core.kernel.sockets import ACCEPTED_FAMILIES
from whorl.core.limits import ACCEPT_REST_NS, ACCEPTS_PER_EVENT
from whorl.core.loop.loop import Loop
from whorl.core.pollers.contract import IOHandle
from whorl.core.states import Event, Life

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from whorl.aio.connections.accepted_socket import Server
    from whorl.aio.loop_type import AnyLoop, FdTable
    from whorl.core.loop.lifecycle import LoopLifecycle
    from whorl.core.timers.timed_callback import TimedCallback

OPEN = int(Life.OPEN)
READABLE = int(Event.READABLE)

_CALL_SOON = Loop.call_soon

# Errors of accept(2) after which connections still wait, but resources to accept them are missing.
EXHAUSTED = (-errno.EMFILE, -errno.ENFILE, -errno.ENOBUFS, -errno.ENOMEM)
NO_ARGUMENTS: tuple[()] = ()
NOTHING_THERE = (-errno.EAGAIN, -errno.EINTR)

if not cython.compiled:

    def is_initialized(acceptor: Any) -> bool:
        """Return whether there are accepted connections to close."""
        return hasattr(acceptor, "_accepted")

    def copy_of(context: Any) -> Any:
        """Return a copy of a context."""
        return context.copy()

    def new(cls: Any) -> Any:
        """Return an object of a class, without calling `__init__`."""
        return cls.__new__(cls)

    def begin_in_context(
        acceptor: Any, fd: int, accepted: tuple[int, bytes | int, Any], context: Any
    ) -> None:
        """Make a protocol and a transport in a context."""
        context.run(acceptor._begin, fd, accepted, context)


class Acceptor(IOHandle):
    """The acceptor of one listening socket."""

    __slots__ = (
        "_accepted",
        "_clients",
        "_exhausted",
        "_face",
        "_kind",
        "_retry_timer",
        "_server",
        "_sock",
        "_table",
    )

    def __init__(self, loop: AnyLoop, server: Server, sock: Any) -> None:
        IOHandle.__init__(self, loop)
        loop._mark_internal(self)
        self._face = loop
        self._server = server
        self._sock = sock
        self._clients: ConnectionSet = server._clients
        self._table: FdTable = loop._transports
        self._retry_timer: TimedCallback | None = None
        # The connections without a transport yet: descriptors, each with the peer's address and its local
        # name.
        self._accepted: list[tuple[int, bytes | int, Any]] = []
        self._exhausted = False  # whether resources ran out, and nothing was accepted since
        self._fd = sock.fileno()
        # The family, the protocol number and the name of its connections, if they may do without a socket
        # object. None if they may have others.
        self._kind: tuple[int, int, Any] | None = None
        if server._ssl_context is None and loop._kernel.accepts_descriptors:
            if is_stock_socket(sock) and sock.family in ACCEPTED_FAMILIES:
                own_name = loop._kernel.socket_name(sock) if sock.family == socket.AF_UNIX else None
                self._kind = int(sock.family), sock.proto, None if isinstance(own_name, int) else own_name
        loop._poller.add(self, READABLE)
        self._activate()

    def _on_events(self, seen: int) -> None:
        if self._accepted:
            self._begin_accepted()
        if seen and self._life == OPEN:
            self._accept()

    def _accept(self) -> None:
        """Accept what waits."""
        kernel = self._face._kernel
        descriptors = self._accepts_descriptors()
        for _ in range(ACCEPTS_PER_EVENT):
            accepted = kernel.accept_descriptor(self._fd) if descriptors else kernel.accept(self._sock)
            if not isinstance(accepted, int):
                self._exhausted = False
                if descriptors:
                    self._begin_soon(accepted)
                else:
                    connection, address = accepted
                    serve(self, connection, address)
                if self._life != OPEN:
                    return
            elif accepted in NOTHING_THERE:
                return
            elif accepted in EXHAUSTED:
                self._take_a_rest(os_error(accepted))
                return
            elif accepted != -errno.ECONNABORTED:
                raise os_error(accepted)

    def _accepts_descriptors(self) -> bool:
        """Return whether a connection needs no socket object.

        It needs none if no program sees it, and none has replaced the functions that make it.
        """
        loop = self._face
        return (
            self._kind is not None
            and not loop._debug
            and has_stock_sockets()
            and getattr(loop._make_socket_transport, "__func__", None) is make_socket_transport
            and getattr(loop.call_soon, "__func__", None) is _CALL_SOON
        )

    def _begin_soon(self, accepted: tuple[int, bytes | int, Any]) -> None:
        """Make the protocol and the transport in the next turn."""
        try:
            self._accepted.append(accepted)
        except BaseException:  # There is no memory for it, and no other code knows the descriptor.
            self._face._kernel.close(accepted[0])
            raise
        self._run_again()

    def _run_again(self) -> None:
        """Run again in the next turn, for the connections that were accepted in this one."""
        machine: LoopLifecycle = self._face
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
        loop = self._face
        machine: LoopLifecycle = loop
        protocol: Any = None
        made: StreamTransport | None = None
        try:
            protocol = self._server._protocol_factory()
            if self._life != OPEN:  # The factory closed the server.
                machine._kernel.close(fd)
                return
            if machine._poller.find(fd) is not None or self._table.get(fd) is not None:
                release_fd_for_transport(loop, fd)
            transport: StreamTransport = new(SocketTransport)
            transport._init_accepted(loop, fd, self._kind, accepted, protocol, context)  # type: ignore[arg-type]
            made = transport
            made._register_with_server(self._server, self._clients)
        except BaseException as error:
            if made is None:
                machine._kernel.close(fd)
            else:
                made.close()
            say_failed(loop, error, protocol, made)

    def _take_a_rest(self, error: OSError) -> None:
        """Report once that descriptors or memory ran out, and try again later."""
        self._retry_timer = self._face.call_later(ACCEPT_REST_NS / 1e9, self._resume)
        self._face._poller.remove(self)
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
        self._retry_timer = None
        if not self.is_closing():
            self._face._poller.add(self, READABLE)

    def _release(self) -> None:
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        self._face._poller.remove(self)
        self._fd = -1
        self._give_up_accepted()

    def _give_up_accepted(self) -> None:
        """Close the accepted connections that will get no transport."""
        while self._accepted:
            fd, _, _ = self._accepted.pop()
            self._face._kernel.close(fd)

    def __del__(self) -> None:
        if is_initialized(self):
            self._give_up_accepted()
