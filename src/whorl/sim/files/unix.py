"""UNIX stream sockets, and pairs of sockets (man 7 unix). Bytes arrive at once."""

from __future__ import annotations

import errno
import socket
from typing import Any

from whorl.sim.files.sockets import NetMachine, StreamSocket


class UnixSocket(StreamSocket):
    """A UNIX stream socket."""

    __slots__ = ("_is_bound",)

    def __init__(self, machine: NetMachine, kind: int = socket.SOCK_STREAM) -> None:
        StreamSocket.__init__(self, machine, socket.AF_UNIX, kind, 0)
        self._is_bound = False

    def bind(self, address: Any) -> int:
        names = self.machine.unix_names
        if self._is_bound:
            return -errno.EINVAL
        if is_abstract(address):
            if address in names:
                return -errno.EADDRINUSE
        elif code := self.machine.disk.name_socket(address):
            return code
        names[address] = self
        self.name = address
        self._is_bound = True
        return 0

    def connect(self, address: Any) -> int:
        if self.is_connected:
            return -errno.EISCONN
        listener = self.machine.unix_names.get(address)
        if listener is None:
            missing = is_abstract(address) or self.machine.disk.exists(address)
            return -errno.ECONNREFUSED if missing else -errno.ENOENT
        if not isinstance(listener, UnixSocket):
            return -errno.EPROTOTYPE
        if listener.backlog < 0:
            return -errno.ECONNREFUSED
        if len(listener.waiting) > listener.backlog:
            return -errno.EAGAIN
        connection = UnixSocket(self.machine, self.type)
        connection.name = listener.name
        connection.peer_name = self.name
        self.peer_name: Any = listener.name
        self.join(connection, None, None)
        connection.is_connected = True
        listener.waiting.append(connection)
        listener.changed()
        self.establish()
        return 0

    def released(self) -> None:
        if self._is_bound and self.machine.unix_names.get(self.name) is self:
            del self.machine.unix_names[self.name]
        super().released()


def is_abstract(name: Any) -> bool:
    """Return whether a name lies outside the file system."""
    return bool(name) and name[0] in ("\0", 0)


def socket_pair(machine: NetMachine, kind: int = socket.SOCK_STREAM) -> tuple[UnixSocket, UnixSocket]:
    """Return two connected sockets (man 2 socketpair)."""
    one, other = UnixSocket(machine, kind), UnixSocket(machine, kind)
    one.join(other, None, None)
    for sock in (one, other):
        sock.peer_name = ""
        sock.is_connected = True
    return one, other
