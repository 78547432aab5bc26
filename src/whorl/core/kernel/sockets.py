"""The kernel's calls for stream sockets as objects: made, named, connected, accepted, set and closed.

Python's `socket` knows every address family, so it makes the calls. Compiled, connections of the
common families are accepted as descriptors, without an object; most of them never need one.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import Any

from whorl.core.kernel.errors import negative_errno
from whorl.core.kernel.files import FileCalls

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

# Bound once: tools that look for blocking calls in a running loop replace functions of `os`, and make their
# exceptions for asyncio's own files.
_stat = os.stat
_unlink = os.unlink

#: The families of stream sockets whose addresses are made as Python's `socket` makes them.
ACCEPTED_FAMILIES = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)

#: The protocols of stream sockets of IP that are TCP. 0 is the default, and 262 is MPTCP, which not every
#: Python names.
TCP_PROTOCOLS = frozenset({0, int(socket.IPPROTO_TCP), 262})

#: Whether they can be accepted without a socket object.
ACCEPTS_DESCRIPTORS = bool(cython.compiled)

if not cython.compiled:

    def _needs_object(*arguments: Any) -> Any:
        """Refuse: uncompiled, connections are made by the socket object."""
        raise NotImplementedError("uncompiled, connections are made by the socket object")

    open_stream = _needs_object
    connect_stream = _needs_object
    names_of_stream = _needs_object
    pending_error = _needs_object
    connection_waits = _needs_object

    def accept_stream(calls: SocketCalls, fd: int) -> Any:
        """Return None: uncompiled, the socket object accepts connections."""
        return -errno.ENOSYS

    def name_in(given: bytes | int) -> Any:
        """Return None: uncompiled, the socket object accepts connections."""
        raise NotImplementedError("uncompiled, connections are accepted by the socket object")


def is_tcp(sock: Any) -> bool:
    """Return whether a socket object is one of TCP.

    If a receive brings less than it asked for, then nothing is left. No other stream promises that. SCTP
    receives single messages, and a UNIX socket ends a receive where descriptors or another writer's data are.
    """
    if sock.type != socket.SOCK_STREAM or sock.proto not in TCP_PROTOCOLS:
        return False
    return sock.family in (socket.AF_INET, socket.AF_INET6)


class SocketCalls(FileCalls):
    """The calls of a kernel for sockets, and for the names of UNIX sockets."""

    def __init__(self) -> None:
        FileCalls.__init__(self)
        self._last_sockaddr = b""  # that of the connection accepted last, and what it is as a name
        self._last_sockname: Any = None

    # Sockets, as objects.

    def open_socket(self, family: int, kind: int, protocol: int) -> Any:
        """Return a new non-blocking socket object, or the negative error number (man 2 socket)."""
        try:
            answer: Any = socket.socket(family, kind, protocol)
        except OSError as error:
            answer = negative_errno(error)
        else:
            answer.setblocking(False)
        return answer

    def adopt_socket(self, fd: int) -> Any:
        """Return a socket object for a descriptor that is a socket, or the negative error number."""
        try:
            answer: Any = socket.socket(fileno=fd)
        except OSError as error:
            answer = negative_errno(error)
        else:
            answer.setblocking(False)
        return answer

    def socket_pair(self) -> Any:
        """Return two connected non-blocking socket objects (man 2 socketpair)."""
        try:
            answer: Any = socket.socketpair()
        except OSError as error:
            answer = negative_errno(error)
        else:
            for sock in answer:
                sock.setblocking(False)
        return answer

    # Sockets, by object and address.

    def bind(self, sock: Any, address: Any) -> int:
        """Give a socket its address (man 2 bind)."""
        code = 0
        try:
            sock.bind(address)
        except OSError as error:
            code = negative_errno(error)
        return code

    def listen(self, sock: Any, backlog: int) -> int:
        """Let a socket take connections (man 2 listen)."""
        code = 0
        try:
            sock.listen(backlog)
        except OSError as error:
            code = negative_errno(error)
        return code

    def accept(self, sock: Any) -> Any:
        """Accept a connection; return a non-blocking socket object and the peer's address (man 2 accept)."""
        try:
            connection, address = sock.accept()
        except OSError as error:
            answer: Any = negative_errno(error)
        else:
            connection.setblocking(False)
            answer = connection, address
        return answer

    def accept_descriptor(self, fd: int) -> Any:
        """Accept a connection; return its descriptor, the peer's address and its own name.

        The own name of a UNIX socket is that of the listening socket (man 7 unix), so it is None here.
        `name_of` makes a name of the address. The connection does not block, and TCP does not wait for more
        data to send (man 2 accept4, TCP_NODELAY). Where accept4 is not implemented, accept is called. Only
        for kernels with `accepts_descriptors`, and for the families whose addresses are known here:
        ACCEPTED_FAMILIES.
        """
        return accept_stream(self, fd)

    def may_accept(self, fd: int) -> bool:
        """Return whether a connection waits on a listening socket, or its error (man 2 poll).

        An `accept4` that finds none takes ten times as long: it makes a socket first.
        """
        waits: bool = connection_waits(fd)
        return waits

    # The same for connections that the loop makes. Only for kernels with `accepts_descriptors`.

    def open_descriptor(self, family: int, protocol: int) -> int:
        """Return a new non-blocking stream socket as a descriptor, or the negative error number."""
        fd: int = open_stream(family, protocol)
        return fd

    def connect_descriptor(self, fd: int, family: int, address: Any) -> int:
        """Begin to connect; return -EINPROGRESS if that goes on (man 2 connect).

        Return UNKNOWN_ADDRESS for an address that only a socket object can convert.
        """
        code: int = connect_stream(fd, family, address)
        return code

    def names_of_descriptor(self, fd: int, peer: Any) -> Any:
        """Return what `accept_descriptor` returns, for a connected socket; TCP sends small packets at once.

        `peer` is the name of the peer, if it is known. A name that the kernel refuses is None. The own name
        of a UNIX socket is there, too.
        """
        return names_of_stream(fd, peer)

    def descriptor_error(self, fd: int) -> int:
        """Take a socket's pending error; return it as a positive number, 0 if there is none (SO_ERROR)."""
        code: int = pending_error(fd)
        return code

    def name_of(self, address: bytes | int) -> Any:
        """Return an address of `accept_descriptor` (a number for IPv4) as Python's `socket` shows it."""
        return name_in(address)

    def socket_of(self, fd: int, family: int, number: int) -> Any:
        """Return the socket object for a descriptor of `accept_descriptor`; for -1, a closed one."""
        if fd >= 0:
            sock = socket.socket(family, socket.SOCK_STREAM, number, fileno=fd)
            sock.setblocking(False)
            return sock
        try:
            sock = socket.socket(family, socket.SOCK_STREAM, number)
        except OSError:  # Descriptors ran out: this one never had any, and says nothing of a family.
            sock = socket.socket.__new__(socket.socket)
        else:
            sock.close()
        return sock

    def connect(self, sock: Any, address: Any) -> int:
        """Begin to connect a socket; return -EINPROGRESS if that goes on (man 2 connect)."""
        code = 0
        try:
            sock.connect(address)
        except OSError as error:
            code = negative_errno(error)
        return code

    def socket_error(self, sock: Any) -> int:
        """Take a socket's pending error; return it as a positive number, 0 if there is none (SO_ERROR)."""
        try:
            code: int = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        except OSError as error:
            code = -negative_errno(error)
        return code

    def set_option(self, sock: Any, level: int, option: int, value: Any) -> int:
        """Set a socket option (man 2 setsockopt)."""
        code = 0
        try:
            sock.setsockopt(level, option, value)
        except OSError as error:
            code = negative_errno(error)
        return code

    def get_option(self, sock: Any, level: int, option: int) -> int:
        """Return a socket option's integer value, or the negative error number (man 2 getsockopt)."""
        try:
            value: int = sock.getsockopt(level, option)
        except OSError as error:
            value = negative_errno(error)
        return value

    def socket_name(self, sock: Any) -> Any:
        """Return a socket's own address, or the negative error number (man 2 getsockname)."""
        try:
            answer = sock.getsockname()
        except OSError as error:
            answer = negative_errno(error)
        return answer

    def peer_name(self, sock: Any) -> Any:
        """Return the peer's address, or the negative error number (man 2 getpeername)."""
        try:
            answer = sock.getpeername()
        except OSError as error:
            answer = negative_errno(error)
        return answer

    def shutdown(self, sock: Any, how: int) -> int:
        """Shut one or both directions of a socket (man 2 shutdown)."""
        code = 0
        try:
            sock.shutdown(how)
        except OSError as error:
            code = negative_errno(error)
        return code

    def close_socket(self, sock: Any) -> int:
        """Close a socket object and its descriptor."""
        code = 0
        try:
            sock.close()
        except OSError as error:
            code = negative_errno(error)
        return code

    # The file system, as far as UNIX sockets live in it.

    def path_status(self, path: str | bytes) -> tuple[int, int] | int:
        """Return the mode and the inode number of a file, or the negative error number (man 2 stat)."""
        try:
            status = _stat(path)
        except OSError as error:
            answer: tuple[int, int] | int = negative_errno(error)
        else:
            answer = status.st_mode, status.st_ino
        return answer

    def unlink(self, path: str | bytes) -> int:
        """Remove a name (man 2 unlink)."""
        code = 0
        try:
            _unlink(path)
        except OSError as error:
            code = negative_errno(error)
        return code

    def change_mode(self, path: str | bytes, mode: int) -> int:
        """Set the permissions of a file (man 2 chmod)."""
        code = 0
        try:
            os.chmod(path, mode)
        except OSError as error:
            code = negative_errno(error)
        return code
