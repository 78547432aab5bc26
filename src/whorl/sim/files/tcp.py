"""TCP: ports, handshakes, and what becomes of a connection (man 7 tcp)."""

from __future__ import annotations

import errno
import socket
from enum import Enum
from typing import TYPE_CHECKING, Any

from whorl.sim.files.sockets import NetMachine, StreamSocket
from whorl.sim.wire.ports import ANY, TIME_WAIT, is_ipv6, plain
from whorl.sim.wire.timeline import MILLISECOND, SECOND

if TYPE_CHECKING:
    from whorl.sim.files.channel import Channel

#: When a request for a connection is sent again, after the first time (man 7 tcp, tcp_syn_retries); and when
#: the attempt is given up.
SYN_RETRIES = tuple(seconds * SECOND for seconds in (1, 3, 7, 15, 31, 63))
SYN_GIVEN_UP = 127 * SECOND


class Attempt(Enum):
    """The state of an attempt to connect. `connect` reports how one ended when it is called once more."""

    NONE = 0
    STARTED = 1
    REPORTED = 2  # as a success
    BROKEN = 3  # by `shutdown`, once it had failed


class TcpSocket(StreamSocket):
    """A TCP socket of IPv4 or IPv6."""

    def __init__(self, machine: NetMachine, family: int, kind: int, protocol: int) -> None:
        StreamSocket.__init__(self, machine, family, kind, protocol or socket.IPPROTO_TCP)
        self._port = 0  # the one that belongs to this socket in the host's table
        self._attempt = Attempt.NONE
        self._began = 0
        self._is_bound = False  # by the program, not for a connection
        self._target: tuple[str, int] = ("", 0)

    def bind(self, address: Any) -> int:
        if self._port or self.incoming is not None:
            return -errno.EINVAL
        ip = plain(address[0])
        if ip not in ANY and not self.machine.address_for(ip) == ip:
            return -errno.EADDRNOTAVAIL
        port = self.machine.tcp_ports.bind(self, ip, address[1], self.machine.now())
        if port < 0:
            return port
        self._port = port
        self._is_bound = True
        self.name: Any = self.shown(ip, port)
        return 0

    def listen(self, backlog: int) -> int:
        if not self._port:
            code = self.bind(self.no_name())
            if code:
                return code
        else:
            ip = plain(self.name[0])
            others = self.machine.tcp_ports.find(ip, self._port, StreamSocket.is_listening)
            if any(other is not self and not other.shares_port(self) for other in others):
                return -errno.EADDRINUSE
        return StreamSocket.listen(self, backlog)

    def connect(self, address: Any) -> int:
        if self._attempt is Attempt.STARTED:
            return self._outcome()
        if self._attempt is Attempt.REPORTED or self.backlog >= 0:
            return -errno.EISCONN
        if self._attempt is Attempt.BROKEN:
            return -errno.EINVAL
        machine = self.machine
        ip, port = plain(address[0]), address[1]
        if ip in ANY:
            ip = "::1" if is_ipv6(ip) else "127.0.0.1"
        if is_ipv6(ip) and not any(map(is_ipv6, machine.addresses)) and ip != "::1":
            return -errno.ENETUNREACH
        own = machine.address_for(ip)
        if not self._port:
            bound = machine.tcp_ports.bind(self, own, 0, machine.now())
            if bound < 0:
                return -errno.EADDRNOTAVAIL
            self._port = bound
        elif plain(self.name[0]) not in ANY:
            own = plain(self.name[0])
        self.name = self.shown(own, self._port)
        self._target = ip, port
        self._attempt = Attempt.STARTED
        self.is_connecting: bool = True
        self._began = machine.now()
        fault = machine.connect_fault()
        if fault:
            machine.after(MILLISECOND, self._fail_to_connect, fault)
        else:
            self._knock(0)
        return -errno.EINPROGRESS

    def _outcome(self) -> int:
        """Return how the attempt to connect ended. After a failure, the socket may try again."""
        if self.is_connecting:
            return -errno.EALREADY
        if not self.is_closed():
            self._attempt = Attempt.REPORTED
            return 0
        code = self.take_error() or errno.ECONNABORTED
        self._forget()
        return -code

    def _forget(self) -> None:
        """Be as new; only what the program has set stays."""
        if self.incoming is not None and self.outgoing is not None:
            self.incoming.receiver = self.outgoing.sender = None
            self.incoming: Channel | None = None
            self.outgoing: Channel | None = None
        self.is_connecting = self.is_connected = False
        self.was_reset: bool = False
        self.shut: int = 0
        self._attempt = Attempt.NONE
        if not self._is_bound and self._port:
            self.machine.tcp_ports.unbind(self, self._port)
            self._port = 0
            self.name = self.no_name()

    def _fail_to_connect(self, code: int) -> None:
        self.fail(code)

    def _knock(self, attempt: int) -> None:
        """Send the request for a connection, for the first time or once more."""
        if not self.is_connecting or self.references <= 0 or self.machine.is_off:
            return
        machine = self.machine
        if attempt > len(SYN_RETRIES):
            self.fail(errno.ETIMEDOUT)
            return
        target = machine.network.machine_at(self._target[0], machine)
        if target is not None:
            line = machine.network.line(machine, target)
            took = -1 if line.is_lost() else line.travel(machine.now(), 0)
            packet = line.note("syn", self, None, 0, machine.now(), took, self._target)
            if took >= 0:
                machine.after(took, self._reach, target, packet)
        due = SYN_RETRIES[attempt] if attempt < len(SYN_RETRIES) else SYN_GIVEN_UP
        machine.after(self._began + due - machine.now(), self._knock, attempt + 1)

    def _reach(self, target: NetMachine, packet: Any) -> None:
        """Arrive at the other host with a request for a connection."""
        if packet is not None:
            packet.is_lost = target.is_off or bool(self.machine.network.line(self.machine, target).blocked)
        if not self.is_connecting or self.incoming is not None or target.is_off:
            return
        machine, network = self.machine, self.machine.network
        line, back = network.line(machine, target), network.line(target, machine)
        if line.blocked:
            return
        ip, port = self._target
        listeners = target.tcp_ports.find(ip, port, StreamSocket.is_listening)
        if not listeners:
            if not back.is_lost():
                took = back.travel(target.now(), 0)
                back.note("rst", None, self, 0, target.now(), took)
                target.after(took, self._refused)
            return
        listener = listeners[0]
        if len(listeners) > 1:
            listener = listeners[target.decisions.stream(f"{target.name}/reuse-port").uniform(len(listeners))]
        if len(listener.waiting) > listener.backlog:
            return  # The request is dropped, and comes again.
        connection = TcpSocket(target, listener.family, self.type, self.protocol)
        connection.options.update(listener.options)
        connection.name = connection.shown(ip, port)
        connection.peer_name = connection.shown(plain(self.name[0]), self._port)
        self.peer_name: Any = self.shown(ip, port)
        self.join(connection, line, back)
        connection.is_connected = True
        connection._attempt = Attempt.REPORTED
        network.established(self, connection)
        listener.waiting.append(connection)
        listener.changed()
        self._answer(connection, back, 0)

    def _answer(self, connection: TcpSocket, back: Any, attempt: int) -> None:
        """Send the answer to a request; again if it is lost."""
        target = connection.machine
        if not self.is_connecting or target.is_off:
            return
        took = -1 if back.is_lost() else back.travel(target.now(), 0)
        back.note("syn-ack", connection, self, 0, target.now(), took)
        if took >= 0:
            target.after(took, self._answered)
        elif attempt < len(SYN_RETRIES):
            target.after(SECOND << attempt, self._answer, connection, back, attempt + 1)

    def _answered(self) -> None:
        if self.is_connecting:
            self.establish()

    def _refused(self) -> None:
        if self.is_connecting and self.incoming is None:
            self.fail(errno.ECONNREFUSED)

    def shutdown(self, how: int) -> int:
        if self.backlog >= 0:
            if how != socket.SHUT_WR:
                self.backlog: int = -1
                self._refuse_waiting()
                self.changed()
            return 0
        if self.is_connecting:
            if self.outgoing is not None:
                self._abort(self.outgoing)
            self._forget()
            self.error: int = errno.ECONNRESET
            self.changed()
            return 0
        if self._attempt is Attempt.STARTED:
            self._attempt = Attempt.BROKEN if self.is_closed() else Attempt.REPORTED
        return StreamSocket.shutdown(self, how)

    def released(self) -> None:
        outgoing, was_reset = self.outgoing, self.was_reset
        closed_first = (
            self.incoming is not None and not was_reset and not self.incoming.ended and not self.lingers_not()
        )
        if self.is_connecting and self.incoming is not None and outgoing is not None:
            self._abort(outgoing)
            self.was_reset = True
        self.is_connecting = False
        StreamSocket.released(self)
        if self._port:
            until = self.machine.now() + TIME_WAIT if closed_first else 0
            self.machine.tcp_ports.unbind(self, self._port, until)
            self._port = 0
