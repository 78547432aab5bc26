"""UNIX sockets of all kinds (man 7 unix). A message lies in the queue of the peer at once."""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from typing import TYPE_CHECKING, Any

from whorl.sim.files.file import (
    BOTH,
    EPOLLERR,
    EPOLLHUP,
    EPOLLIN,
    EPOLLOUT,
    EPOLLRDHUP,
    READING,
    WRITING,
    unreferenced,
)
from whorl.sim.files.sockets import BUFFER, CREDENTIALS, NetMachine
from whorl.sim.files.udp import DatagramFile

if TYPE_CHECKING:
    from whorl.sim.files.file import File

#: A message that is larger does not fit into a socket's buffer.
_LARGEST = BUFFER - 32


class Message:
    """A message, or some bytes of a stream, with the descriptors that it carries."""

    __slots__ = ("data", "files", "sender")

    def __init__(self, data: bytes, sender: Any, files: list[File]) -> None:
        self.data: bytes = data
        self.sender: Any = sender  # its name; None: it has none
        self.files: list[File] = files
        for file in files:
            file.references += 1


class UnixSocket(DatagramFile):
    """A UNIX socket: a stream, or one that keeps the bounds of messages."""

    __slots__ = (
        "_carried",
        "_handed",
        "_is_bound",
        "_refused",
        "backlog",
        "closed_at",
        "connections",
        "link",
    )

    def __init__(self, machine: NetMachine, kind: int) -> None:
        super().__init__(machine, socket.AF_UNIX, kind, 0)
        self.is_whole: bool = kind != socket.SOCK_STREAM
        self.link: UnixSocket | None = None  # the peer, also when it is closed
        self.closed_at: int = -1
        self.backlog: int = -1  # not negative: it listens
        self.connections: deque[UnixSocket] = deque()  # to accept
        self._handed: list[File] = []  # descriptors that go with what is sent next
        self._carried: list[File] = []  # those that came with what was read last
        self._is_bound = False
        self._refused: list[UnixSocket] = []  # those that wait for room in this queue

    # Names and connections.

    def bind(self, address: Any) -> int:
        if self._is_bound:
            return -errno.EINVAL
        names, key = self.machine.unix_names, self._key(address)
        if is_abstract(address):
            if key in names:
                return -errno.EADDRINUSE
        elif code := self.machine.disk.name_socket(address):
            return code
        names[key] = self
        self.name: Any = address
        self._is_bound = True
        return 0

    def _key(self, address: Any) -> Any:
        """Return the key of a name in the host's table; outside the file system, each kind has its own."""
        return (address, self.type) if is_abstract(address) else address

    def _at(self, address: Any) -> UnixSocket | int:
        """Return the socket of a name, or the negative error number."""
        found: UnixSocket | None = self.machine.unix_names.get(self._key(address))
        if found is None:
            missing = is_abstract(address) or self.machine.disk.exists(address)
            return -errno.ECONNREFUSED if missing else -errno.ENOENT
        return found if found.type == self.type else -errno.EPROTOTYPE

    def connect(self, address: Any) -> int:
        found = self._at(address)
        if isinstance(found, int):
            return found
        if self.type == socket.SOCK_DGRAM:
            return self._send_only_to(found)
        if found.backlog < 0 or found.shut & READING:
            return -errno.ECONNREFUSED
        if len(found.connections) > found.backlog:
            return -errno.EAGAIN
        if self.link is not None or self.backlog >= 0:
            return -errno.EISCONN if self.link is not None else -errno.EINVAL
        connection = UnixSocket(self.machine, self.type)
        connection.name = found.name
        self.join(connection)
        found.connections.append(connection)
        found.changed()
        return 0

    def _send_only_to(self, other: UnixSocket) -> int:
        if other.link not in (None, self):
            return -errno.EPERM  # It takes messages only of another one.
        if self.link not in (None, other):
            self.disconnect()
        self.link = other
        self.changed()
        return 0

    def join(self, other: UnixSocket) -> None:
        """Connect two sockets."""
        self.link, other.link = other, self
        self.peer_name: Any = other.name
        other.peer_name = self.name
        self.changed()

    def disconnect(self) -> int:
        """Take messages of all senders again. Those that wait are lost (man 7 unix)."""
        self.link = None
        self._drop_messages()
        self.changed()
        return 0

    def peer(self) -> Any:
        return self.link.name if self.link is not None else None

    def left_by(self) -> tuple[File | None, int]:
        link = self.link if self.type != socket.SOCK_DGRAM else None
        return (link, link.closed_at) if link is not None else (None, -1)

    def option(self, level: int, option: int) -> Any:
        is_asked = (level, option) == (socket.SOL_SOCKET, socket.SO_PEERCRED)
        if not is_asked or (self.peer_name is None and self.backlog < 0):
            return super().option(level, option)
        return CREDENTIALS.pack(self.machine.process_id, os.getuid(), os.getgid())

    # Listening.

    def is_listening(self) -> bool:
        return self.backlog >= 0

    def listen(self, backlog: int) -> int:
        if self.type == socket.SOCK_DGRAM:
            return -errno.EOPNOTSUPP
        if not self._is_bound or self.link is not None:
            return -errno.EINVAL
        self.backlog = max(0, backlog)
        self.changed()
        return 0

    def accept(self) -> Any:
        if self.type == socket.SOCK_DGRAM:
            return -errno.EOPNOTSUPP
        if self.backlog < 0:
            return -errno.EINVAL
        return self.connections.popleft() if self.connections else -errno.EAGAIN

    def take_back(self, connection: UnixSocket) -> None:
        self.connections.appendleft(connection)
        self.changed()

    # Readiness.

    def readiness(self) -> int:
        ready = EPOLLERR if self.error else 0
        if self.shut == BOTH:
            ready |= EPOLLHUP
        if self.shut & READING:
            ready |= EPOLLIN | EPOLLRDHUP
        if self.backlog >= 0:
            return ready | EPOLLIN if self.connections else ready
        if self.waiting:
            ready |= EPOLLIN
        link = self.link
        if link is None and self.type != socket.SOCK_DGRAM:
            ready |= EPOLLHUP
        return ready | EPOLLOUT if link is None or link.has_much_room() else ready

    def has_much_room(self) -> bool:
        """Return whether so much room is left that a sender is told of it."""
        return self._waiting_size * 4 <= BUFFER

    def await_room(self) -> None:
        if self.link is not None:
            self.link._refused.append(self)

    def _tell_room(self) -> None:
        if self._refused and self.has_much_room():
            refused, self._refused = self._refused, []
            for sender in dict.fromkeys(refused):
                sender.changed()

    # Sending.

    def send_to(self, data: bytes, address: Any) -> int:
        if not self.is_whole:
            if address is not None:
                return -errno.EISCONN if self.link is not None else -errno.EOPNOTSUPP
            return self._send_bytes(data)
        if self.type == socket.SOCK_SEQPACKET:
            address = None
            if self.error:
                return -self.take_error()
            if self.link is None:
                return -errno.ENOTCONN
        if len(data) > _LARGEST:
            return -errno.EMSGSIZE
        if code := self._refusal():
            return code
        target = self.link if address is None else self._at(address)
        if target is None:
            return -errno.ENOTCONN
        return target if isinstance(target, int) else self._send_message(target, data)

    def _refusal(self) -> int:
        """Return why nothing can be sent; 0: it can."""
        if self.error:
            return -self.take_error()
        return -errno.EPIPE if self.shut & WRITING else 0

    def _send_bytes(self, data: bytes) -> int:
        link = self.link
        if link is None:
            return -errno.ENOTCONN
        if self.shut & WRITING:
            return -errno.EPIPE
        if not data:
            return 0
        if code := self._refusal():
            return code
        room = BUFFER - link._waiting_size
        if room < len(data):
            self.await_room()
            if room <= 0:
                return -errno.EAGAIN
            data = data[:room]
        link._take(data, self)
        return len(data)

    def _send_message(self, target: UnixSocket, data: bytes) -> int:
        if target.link not in (None, self):
            return -errno.EPERM
        if target.closed_at >= 0:
            self.disconnect()
            return -errno.ECONNREFUSED
        if target.shut & READING:
            return -errno.EPIPE
        if target._waiting_size + len(data) > BUFFER:
            target._refused.append(self)
            return -errno.EAGAIN
        target._take(data, self)
        return len(data)

    def _take(self, data: bytes, sender: UnixSocket) -> None:
        self._waiting_size += len(data)
        self.waiting.append(Message(data, sender.name or None, sender._handed))
        self.changed()

    def hand(self, files: list[File]) -> int:
        self._handed = files
        return 0

    # Receiving.

    def take_carried(self) -> list[File]:
        carried, self._carried = self._carried, []
        return carried

    def name_of_sender(self) -> Any:
        return self.peer_name or None

    def receive(self, peeks: bool = False) -> tuple[bytes, Any] | int:
        is_sequence = self.type == socket.SOCK_SEQPACKET
        if is_sequence and self.link is None:
            return -errno.ENOTCONN
        if self.error:
            return -self.take_error()
        if not self.waiting:
            return (b"", None) if is_sequence and self.shut & READING else -errno.EAGAIN
        message = self.waiting[0]
        if not peeks:
            self._drop_carried()
            self._carried = self._pop().files
        return message.data, message.sender

    def _pop(self) -> Message:
        message: Message = self.waiting.popleft()
        self._waiting_size -= len(message.data)
        self._tell_room()
        return message

    def read(self, limit: int) -> bytes | int:
        return super().read(limit) if self.is_whole else self._read_bytes(limit, False)

    def peek(self, limit: int) -> bytes | int:
        return super().peek(limit) if self.is_whole else self._read_bytes(limit, True)

    def unread(self) -> int:
        if self.is_whole:
            return len(self.waiting[0].data) if self.waiting else 0
        return self._waiting_size if self.link is not None else -errno.EINVAL

    def _read_bytes(self, limit: int, peeks: bool) -> bytes | int:
        if self.link is None:
            return -errno.EINVAL
        if not self.waiting:
            if self.error:
                return -self.take_error()
            return b"" if self.shut & READING else -errno.EAGAIN
        if peeks:
            return b"".join(message.data for message in self.waiting)[:limit]
        self._drop_carried()
        parts: list[bytes] = []
        while limit and self.waiting and not self._carried:
            message = self.waiting[0]
            if message.files and parts:
                break  # What carries descriptors begins a read, and ends it.
            self._carried, message.files = message.files, []
            if limit < len(message.data):
                parts.append(message.data[:limit])
                message.data = message.data[limit:]
                self._waiting_size -= limit
                self._tell_room()
                break
            parts.append(self._pop().data)
            limit -= len(parts[-1])
        return b"".join(parts)

    # The end.

    def shutdown(self, how: int) -> int:
        self.note_shut(how)
        link = self.link
        if link is not None and self.type != socket.SOCK_DGRAM:
            link.shut |= {READING: WRITING, WRITING: READING, BOTH: BOTH}[how + 1]
            link.changed()
        self.changed()
        return 0

    def released(self) -> None:
        names, key = self.machine.unix_names, self._key(self.name)
        if names.get(key) is self:
            del names[key]
        self.closed_at = self.machine.now()
        link = self.link
        if link is not None and self.type != socket.SOCK_DGRAM:
            link.shut = BOTH
            if self._waiting_size:
                link.error = errno.ECONNRESET
            link.changed()
        for connection in self.connections:  # Nobody has accepted them.
            if connection.link is not None:
                connection.link.error = errno.ECONNRESET
            connection.released()
        self._drop_carried()
        self._drop_messages()

    def _drop_messages(self) -> None:
        while self.waiting:
            for file in self._pop().files:
                unreferenced(file)

    def _drop_carried(self) -> None:
        for file in self._carried:
            unreferenced(file)
        self._carried = []


def is_abstract(name: Any) -> bool:
    """Return whether a name lies outside the file system."""
    return bool(name) and name[0] in ("\0", 0)


def socket_pair(machine: NetMachine, kind: int) -> tuple[UnixSocket, UnixSocket]:
    """Return two connected sockets (man 2 socketpair)."""
    one, other = UnixSocket(machine, kind), UnixSocket(machine, kind)
    one.join(other)
    return one, other
