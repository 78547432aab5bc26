"""Options, errors and names of all simulated sockets; and stream sockets, once connected."""

from __future__ import annotations

import errno
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from whorl.sim.files.channel import Channel, Flow
from whorl.sim.files.file import (
    AF_INET6,
    BOTH,
    EPOLLERR,
    EPOLLHUP,
    EPOLLIN,
    EPOLLOUT,
    EPOLLRDHUP,
    READING,
    WRITING,
    File,
    Machine,
)
from whorl.sim.wire.timeline import MILLISECOND

if TYPE_CHECKING:
    from whorl.sim.files.disk import Disk
    from whorl.sim.wire.line import Line
    from whorl.sim.wire.ports import PortTable

LINGER = struct.Struct("ii")

#: The value of SO_PEERCRED: process, user, group; and that of a socket which has no peer on its host.
CREDENTIALS = struct.Struct("3i")
NO_CREDENTIALS = CREDENTIALS.pack(0, -1, -1)

_FLAGS = (socket.SO_REUSEADDR, socket.SO_REUSEPORT, socket.SO_KEEPALIVE, socket.SO_BROADCAST)
_USER_TIMEOUT = 18  # TCP_USER_TIMEOUT

#: How many bytes a socket keeps (net.core.rmem_default).
BUFFER = 212_992


class Network(Protocol):
    """The network, as sockets see it."""

    changes: int

    def machine_at(self, ip: str, asked_by: NetMachine) -> NetMachine | None: ...
    def line(self, source: NetMachine, target: NetMachine) -> Line: ...
    def established(self, client: Any, server: Any) -> None: ...


class NetMachine(Machine, Protocol):
    """The host, as sockets see it."""

    tcp_ports: PortTable
    udp_ports: PortTable
    unix_names: dict[Any, Any]
    disk: Disk
    addresses: tuple[str, ...]
    process_id: int

    @property
    def network(self) -> Network: ...
    def address_for(self, ip: str) -> str: ...
    def connect_fault(self) -> int: ...


class SocketFile(File):
    """A socket: its family, type, options, name and pending error."""

    machine: NetMachine

    def __init__(self, machine: NetMachine, family: int, kind: int, protocol: int) -> None:
        File.__init__(self, machine)
        self.family: int = int(family)
        self.type: int = kind
        self.protocol: int = protocol
        self.options: dict[tuple[int, int], Any] = {}
        self.name: Any = self.no_name()
        self.error: int = 0
        self.shut: int = 0  # the directions that nobody uses any more

    def no_name(self) -> Any:
        """Return the name of a socket that was not bound."""
        if self.family == socket.AF_INET6:
            return ("::", 0, 0, 0)
        return ("0.0.0.0", 0) if self.family == socket.AF_INET else ""

    def note_shut(self, how: int) -> None:
        """Note that a direction is shut, or both: SHUT_RD, SHUT_WR or SHUT_RDWR."""
        self.shut |= how + 1

    def take_error(self) -> int:
        """Return the pending error, and forget it (SO_ERROR)."""
        code, self.error = self.error, 0
        return code

    # Options.

    def set_option(self, level: int, option: int, value: Any) -> int:
        """Set an option; return 0 or the negative error number."""
        self.options[level, option] = value
        return 0

    def option(self, level: int, option: int) -> Any:
        """Return an option's value: a number, or the bytes that were set."""
        if level == socket.SOL_SOCKET:
            if option == socket.SO_ERROR:
                return self.take_error()
            if option == socket.SO_TYPE:
                return int(self.type)
            if option == socket.SO_DOMAIN:
                return int(self.family)
            if option == socket.SO_PROTOCOL:
                return self.protocol
            if option == socket.SO_ACCEPTCONN:
                return int(self.is_listening())
            if option == socket.SO_PEERCRED:
                return NO_CREDENTIALS
            if option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                given = self.options.get((level, option))
                return BUFFER if given is None else 2 * given
            if option == socket.SO_LINGER:
                return self.options.get((level, option), LINGER.pack(0, 0))
        return self.options.get((level, option), 0)

    def is_set(self, level: int, option: int) -> bool:
        """Return whether an option is not zero."""
        value = self.options.get((level, option), 0)
        return any(value) if isinstance(value, bytes) else bool(value)

    def reuses_address(self) -> bool:
        """Return whether SO_REUSEADDR is set."""
        return self.is_set(socket.SOL_SOCKET, socket.SO_REUSEADDR)

    def reuses_port(self) -> bool:
        """Return whether SO_REUSEPORT is set."""
        return self.is_set(socket.SOL_SOCKET, socket.SO_REUSEPORT)

    def shares_port(self, other: SocketFile) -> bool:
        """Return whether two sockets may have one port (SO_REUSEPORT)."""
        return self.reuses_port() and other.reuses_port()

    def only_ipv6(self) -> bool:
        """Return whether an IPv6 socket refuses IPv4 (IPV6_V6ONLY)."""
        return self.is_set(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)

    def is_listening(self) -> bool:
        """Return whether the socket takes connections."""
        return False

    def shown(self, ip: str, port: int) -> Any:
        """Return an address as Python shows it for this family."""
        if self.family == AF_INET6:
            return (f"::ffff:{ip}" if ":" not in ip else ip, port, 0, 0)
        return (ip, port)

    # What each kind does in its own way.

    def bind(self, address: Any) -> int:
        return -errno.EOPNOTSUPP

    def connect(self, address: Any) -> int:
        return -errno.EOPNOTSUPP

    def listen(self, backlog: int) -> int:
        return -errno.EOPNOTSUPP

    def accept(self) -> Any:
        return -errno.EOPNOTSUPP

    def take_back(self, connection: Any) -> None:
        """Let a connection wait that got no descriptor."""

    def shutdown(self, how: int) -> int:
        return -errno.ENOTCONN

    def peer(self) -> Any:
        """Return the peer's name; None if there is none."""
        return None

    def left_by(self) -> tuple[File | None, int]:
        """Return the other end of a connection if it is open, and when it was closed; -1: it was not."""
        return None, -1

    def peek(self, limit: int) -> bytes | int:
        """Return what `read` would return, and leave it (MSG_PEEK)."""
        raise NotImplementedError

    def name_of_sender(self) -> Any:
        """Return the name of those whose bytes a stream brings, as `recvfrom` shows it."""
        return None

    def hand(self, files: list[File]) -> int:
        """Let open files go with what is sent next (SCM_RIGHTS)."""
        return -errno.EINVAL

    def take_carried(self) -> list[File]:
        """Return the open files that came with what was read last."""
        return []


class StreamSocket(SocketFile):
    """A stream socket: bytes in both directions, once it is connected."""

    capacity = 150_000  # bytes in one direction, on their way or unread

    def __init__(self, machine: NetMachine, family: int, kind: int, protocol: int) -> None:
        SocketFile.__init__(self, machine, family, kind, protocol)
        self.backlog: int = -1  # not negative: it listens
        self.waiting: deque[StreamSocket] = deque()  # connections to accept
        self.incoming: Channel | None = None
        self.outgoing: Channel | None = None
        self.peer_name: Any = None
        self.is_connecting: bool = False
        self.is_connected: bool = False
        self.was_reset: bool = False

    def is_listening(self) -> bool:
        return self.backlog >= 0

    def peer(self) -> Any:
        return None if self.is_closed() else self.peer_name

    def left_by(self) -> tuple[File | None, int]:
        incoming = self.incoming
        return (incoming.sender, incoming.closed_at) if incoming is not None else (None, -1)

    def is_closed(self) -> bool:
        """Return whether there is no connection: none yet, or none any more, as both sides have ended it."""
        incoming, outgoing = self.incoming, self.outgoing
        if self.was_reset or not self.is_connected or incoming is None or outgoing is None:
            return True
        return incoming.ended and outgoing.ended

    def join(self, other: StreamSocket, line: Line, back: Line) -> None:
        """Connect two sockets: the bytes of this one travel on `line`, those of the other on `back`."""
        flow = Flow()
        self.outgoing = other.incoming = Channel(self, other, line, self.capacity, flow)
        other.outgoing = self.incoming = Channel(other, self, back, other.capacity, flow)

    def establish(self) -> None:
        """Be connected from now on."""
        self.is_connecting = False
        self.is_connected = True
        self.changed()

    def readiness(self) -> int:
        if self.backlog >= 0:
            return EPOLLIN if self.waiting else 0
        ready = EPOLLERR if self.error else 0
        if self.was_reset:
            return ready | EPOLLIN | EPOLLOUT | EPOLLHUP | EPOLLRDHUP
        incoming, outgoing, shut = self.incoming, self.outgoing, self.shut
        if incoming is not None and incoming.ended:
            shut |= READING
        if shut & READING:
            ready |= EPOLLIN | EPOLLRDHUP
        if not self.is_connected or incoming is None or outgoing is None:
            return ready if self.is_connecting else ready | EPOLLOUT | EPOLLHUP
        if shut == BOTH:
            ready |= EPOLLHUP
        if incoming.arrived:
            ready |= EPOLLIN
        if shut & WRITING or outgoing.room() * 3 >= outgoing.capacity:
            ready |= EPOLLOUT
        return ready

    def read(self, limit: int) -> bytes | int:
        incoming = self.incoming
        if incoming is not None and incoming.arrived:
            return incoming.take(limit)
        if incoming is not None and incoming.ended:
            return b""  # also if there was an error afterwards
        if self.error:
            return -self.take_error()
        if self.was_reset or self.shut & READING:
            return b""
        if incoming is None or not self.is_connected:
            return -errno.EAGAIN if self.is_connecting else -errno.ENOTCONN
        return -errno.EAGAIN

    def peek(self, limit: int) -> bytes | int:
        incoming = self.incoming
        if incoming is not None and incoming.arrived:
            return bytes(incoming.arrived[:limit])
        return self.read(limit)

    def unread(self) -> int:
        return len(self.incoming.arrived) if self.incoming is not None else 0

    def write(self, data: bytes) -> int:
        if self.error:
            return -self.take_error()
        outgoing = self.outgoing
        if self.was_reset or self.shut & WRITING or outgoing is None or not self.is_connected:
            return -errno.EAGAIN if self.is_connecting else -errno.EPIPE
        room = outgoing.room()
        size = len(data)
        if room < size:
            outgoing.was_full = True
            if room <= 0:
                return -errno.EAGAIN
            data, size = data[:room], room
        if size:
            outgoing.send(data)
        return size

    # Silence.

    def patience(self) -> int:
        """Return how long data may stay unanswered, in nanoseconds (TCP_USER_TIMEOUT); 0: not set."""
        return self.options.get((socket.IPPROTO_TCP, _USER_TIMEOUT), 0) * MILLISECOND  # type: ignore[no-any-return]

    def await_room(self) -> None:
        if self.outgoing is not None:
            self.outgoing.was_full = True

    # The end.

    def fail(self, code: int) -> None:
        """Break the connection, or the attempt to connect, with an error."""
        if self.was_reset:
            return
        self.error = code
        self.was_reset = True
        self.is_connecting = False
        if self.outgoing is not None:
            self.outgoing.drop_more()
        self.changed()

    def reset(self) -> None:
        """Handle a reset from the peer (man 7 tcp, RST)."""
        incoming = self.incoming
        if incoming is None or not incoming.ended:
            self.fail(errno.ECONNRESET)
        elif not self.is_closed():
            self.fail(errno.ECONNRESET if self.shut & WRITING else errno.EPIPE)

    def shutdown(self, how: int) -> int:
        was_closed = self.is_closed()
        if how != socket.SHUT_RD and not was_closed and self.outgoing is not None:
            self.outgoing.send_end()
        self.note_shut(how)
        if self.shut == BOTH and self.incoming is not None:
            self.incoming.refuses = True
        self.changed()
        return -errno.ENOTCONN if was_closed else 0

    def listen(self, backlog: int) -> int:
        if self.is_connected or self.is_connecting:
            return -errno.EINVAL
        self.backlog = max(0, backlog)
        return 0

    def accept(self) -> Any:
        """Return the oldest connection that waits, or the negative error number."""
        if self.backlog < 0:
            return -errno.EINVAL
        if not self.waiting:
            return -errno.EAGAIN
        return self.waiting.popleft()

    def take_back(self, connection: StreamSocket) -> None:
        self.waiting.appendleft(connection)
        self.changed()

    def lingers_not(self) -> bool:
        """Return whether closing resets the connection (SO_LINGER of 0 seconds)."""
        lingers = self.options.get((socket.SOL_SOCKET, socket.SO_LINGER))
        return lingers is not None and LINGER.unpack(lingers) == (1, 0)

    def released(self) -> None:
        self._refuse_waiting()
        incoming, outgoing = self.incoming, self.outgoing
        if incoming is None or outgoing is None:
            return
        incoming.receiver = None
        if not self.is_closed():
            if incoming.arrived or self.lingers_not():
                self._abort(outgoing)
            else:
                outgoing.send_end()
        outgoing.sender = None
        outgoing.closed_at = self.machine.now()
        self.is_connected = False

    def _refuse_waiting(self) -> None:
        """Reset the connections that nobody has accepted."""
        for connection in self.waiting:
            if connection.outgoing is not None and not connection.is_closed():
                connection._abort(connection.outgoing)
                connection.was_reset = True
            connection.released()
        self.waiting.clear()

    def _abort(self, outgoing: Channel) -> None:
        """Reset the peer."""
        outgoing.drop_more()
        peer = outgoing.receiver
        if peer is not None and not outgoing.line.is_lost():
            now = self.machine.now()
            took = outgoing.line.travel(now, 0)
            outgoing.line.note("rst", self, peer, 0, now, took)
            self.machine.after(took, peer.reset)
