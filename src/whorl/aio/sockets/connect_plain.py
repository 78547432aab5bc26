"""Connecting plain sockets, by their descriptors.

Most connections are made by the loop's own methods alone, to an address in numbers. They need no object of
Python's `socket`, no name resolution and no coroutines in between. Each function here returns None if a
program has replaced a method. It does so, too, if the address has to be resolved, or the kernel is not the
real one. The caller then goes the general way, in `aio/connections/connect` and `aio/sockets/sock_methods`.
"""

from __future__ import annotations

import _socket
import errno
import socket
from typing import TYPE_CHECKING, Any

from whorl.aio.interop.stock import (
    CONNECTION_METHODS,
    has_stock_connection_methods,
    has_stock_sockets,
    is_stock_client_factory,
    is_stock_socket,
)
from whorl.aio.sockets.connect_attempt import ConnectAttempt
from whorl.aio.sockets.watch import release_fd_for_transport
from whorl.aio.streams.adoption import attach_new_feed
from whorl.aio.transports.public import SocketTransport
from whorl.aio.transports.stream import StreamTransport
from whorl.core.kernel.errors import UNKNOWN_ADDRESS, os_error

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop, FdTable
    from whorl.aio.streams.feed import StreamWait
    from whorl.core.loop.loop import Loop

AF_INET = int(socket.AF_INET)
AF_INET6 = int(socket.AF_INET6)
AF_UNIX = int(socket.AF_UNIX)
SOCK_STREAM = int(socket.SOCK_STREAM)
SOCK_DGRAM = int(socket.SOCK_DGRAM)
IPPROTO_TCP = int(socket.IPPROTO_TCP)
IPPROTO_UDP = int(socket.IPPROTO_UDP)
ANY_ADDRESS = "0.0.0.0"

# The numbers behind the attributes of a socket object: Python's own attributes make an enum member each time.
FAMILY, KIND, PROTOCOL = (vars(_socket.socket)[name] for name in ("family", "type", "proto"))

if not cython.compiled:
    from contextvars import copy_context

    from whorl.aio.transports.stream import new

    def attributes_of(thing: Any) -> dict[str, Any]:
        """Return the dictionary of an object of a class written in Python."""
        attributes: dict[str, Any] = thing.__dict__
        return attributes

    def number_in(sock: Any, member: Any) -> int:
        """Return a number of a socket object."""
        number: int = member.__get__(sock)
        return number


def is_stock_loop(loop: AnyLoop) -> bool:
    """Return whether a loop connects and accepts by nothing but its own methods, on the real kernel."""
    machine: Loop = loop
    if machine._debug or not machine._kernel.accepts_descriptors:
        return False
    if not has_stock_sockets() or not has_stock_connection_methods(type(loop)):
        return False
    attributes = attributes_of(loop)
    if attributes:
        for name in CONNECTION_METHODS:
            if name in attributes:
                return False
    return True


def connect_to_numbers(
    loop: AnyLoop, host: Any, port: Any, family: Any, protocol: Any, flags: Any
) -> ConnectAttempt | None:
    """Begin to connect a new TCP socket to a host and a port that are numbers; no option but a family."""
    if type(host) is not str or type(port) is not int or not isinstance(family, int):
        return None
    if type(protocol) is not int or protocol or type(flags) is not int or flags or not is_stock_loop(loop):
        return None
    if ":" in host:
        found = AF_INET6
    elif host and host[len(host) - 1].isdigit():
        found = AF_INET
    else:
        return None  # It is a name.
    return connect_descriptor(loop, found, IPPROTO_TCP, (host, port)) if family in (0, found) else None


def connect_descriptor(loop: AnyLoop, family: int, protocol: int, address: Any) -> ConnectAttempt | None:
    """Begin to connect a new stream socket to an address. Raises OSError if the kernel refuses at once."""
    machine: Loop = loop
    kernel = machine._kernel
    poller = machine._poller
    table: FdTable = loop._transports
    fd = kernel.open_descriptor(family, protocol)
    if fd < 0:
        raise os_error(fd)
    attempt: ConnectAttempt | None = None
    try:
        if poller.find(fd) is not None or table.get(fd) is not None:
            release_fd_for_transport(loop, fd)
        if machine._held.streams:
            machine._held.push_all()
        code = kernel.connect_descriptor(fd, family, address)
        if code != UNKNOWN_ADDRESS:
            if code and code != -errno.EINPROGRESS and code != -errno.EINTR:
                raise os_error(code)
            made: ConnectAttempt = new(ConnectAttempt)
            made._init_begun(machine, fd, (family, protocol, None))
            if family == AF_INET and address[0] != ANY_ADDRESS:
                made._peer = address  # The kernel shows it in the same way.
            made._owns_fd = True  # From here on it closes the descriptor.
            attempt = made
            if code:
                made._watch()
    finally:
        if attempt is None:
            kernel.close(fd)
    return attempt


def connect_socket(loop: AnyLoop, sock: Any, address: Any) -> ConnectAttempt | None:
    """Begin to connect a socket of Python's class. Raises OSError if the kernel refuses at once."""
    if not is_stock_socket(sock) or not is_stock_loop(loop) or sock.gettimeout() != 0:
        return None
    machine: Loop = loop
    family = number_in(sock, FAMILY)
    kind = number_in(sock, KIND)
    if family != AF_UNIX and (
        family not in (AF_INET, AF_INET6)
        or kind not in (SOCK_STREAM, SOCK_DGRAM)
        or number_in(sock, PROTOCOL) not in (0, IPPROTO_TCP, IPPROTO_UDP)
    ):
        return None
    fd: int = sock.fileno()
    if fd < 0:
        return None
    table: FdTable = loop._transports
    if machine._poller.find(fd) is not None or table.get(fd) is not None:
        return None
    if machine._held.streams:
        machine._held.push_all()
    code = machine._kernel.connect_descriptor(fd, family, address)
    if code == UNKNOWN_ADDRESS:
        return None
    if code and code != -errno.EINPROGRESS and code != -errno.EINTR:
        raise os_error(code)
    attempt: ConnectAttempt = new(ConnectAttempt)
    attempt._init_begun(machine, fd, (family, 0, None))
    if code:
        attempt._watch()
    return attempt


def open_transport(
    attempt: ConnectAttempt, address: Any, protocol_factory: Any
) -> tuple[Any, Any, StreamWait]:
    """Return the transport of a connection, its protocol, and the wait until the protocol knows it.

    Raise the error of the connect, if there is one, with the address in its text.
    """
    attempt.check(address)
    protocol = protocol_factory()
    if is_stock_client_factory(protocol_factory):
        attach_new_feed(protocol)
    wait = attempt.reuse_wait()
    return begin_transport(attempt, protocol, wait), protocol, wait


def begin_transport(attempt: ConnectAttempt, protocol: Any, waiter: Any) -> Any:
    """Return the transport of a connection; `waiter` is done when the protocol knows it."""
    machine: Loop = attempt._machine
    fd = attempt._socket_fd
    names = machine._kernel.names_of_descriptor(fd, attempt._peer)
    transport: StreamTransport = new(SocketTransport)
    loop: Any = machine
    transport._init_connected(loop, fd, attempt._kind, names, protocol, copy_context(), None, waiter)
    attempt._owns_fd = False
    if attempt._is_idle_watch and transport._edge:
        transport._take_over_watch(attempt, attempt._early | attempt._seen)
    return transport


def transport_over_socket(loop: AnyLoop, sock: Any, protocol: Any, waiter: Any, context: Any) -> Any:
    """Return a transport over a connected socket of Python's class; None if the general way is needed."""
    if not is_stock_socket(sock) or not is_stock_loop(loop):
        return None
    family = number_in(sock, FAMILY)
    if family not in (AF_INET, AF_INET6, AF_UNIX) or number_in(sock, KIND) != SOCK_STREAM:
        return None
    fd: int = sock.fileno()
    if fd < 0:
        return None
    kind = (family, number_in(sock, PROTOCOL), None)
    machine: Loop = loop
    names = machine._kernel.names_of_descriptor(fd, None)
    context = copy_context() if context is None else context
    transport: StreamTransport = new(SocketTransport)
    transport._init_connected(loop, fd, kind, names, protocol, context, sock, waiter)
    return transport
