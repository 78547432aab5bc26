"""Datagrams: UDP, and what all sockets that keep the bounds of messages share (man 7 udp)."""

from __future__ import annotations

import errno
import socket
import struct
from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from whorl.sim.files.file import (
    AF_INET6,
    AGAIN,
    BOTH,
    EPOLLERR,
    EPOLLHUP,
    EPOLLIN,
    EPOLLOUT,
    EPOLLRDHUP,
    READING,
    WRITING,
)
from whorl.sim.files.sockets import BUFFER, NetMachine, SocketFile
from whorl.sim.wire.ports import ANY, is_ipv6, nearest, plain
from whorl.sim.wire.timeline import Event

if TYPE_CHECKING:
    from whorl.sim.wire.line import Line

#: The largest payload of a UDP datagram, and the largest packet.
_LARGEST = 65_507
_LARGEST_PACKET = 65_535

#: The option by which a socket forbids fragments, and its value (man 7 ip); the headers of IPv4 and UDP.
_MTU_DISCOVER, _ALWAYS_DISCOVER = 10, 2
_HEADERS = 28

#: So many bytes fit into a packet on every line.
_ALWAYS_FITS = 40

BROADCAST = "255.255.255.255"

#: So many addresses are kept with the answer whether they are of multicast.
_KNOWN = 1024


class DatagramFile(SocketFile):
    """A socket for datagrams: those that wait, and the peer if it is connected."""

    def __init__(self, machine: NetMachine, family: int, kind: int, protocol: int) -> None:
        super().__init__(machine, family, kind, protocol)
        self.is_whole: bool = True
        self.waiting: deque[Any] = deque()  # of UDP: each datagram with its sender's address
        self.peer_name: Any = None
        self._waiting_size = 0

    def peer(self) -> Any:
        return self.peer_name

    def readiness(self) -> int:
        ready = EPOLLOUT | (EPOLLIN if self.waiting else 0) | (EPOLLERR if self.error else 0)
        if self.shut & READING:
            ready |= EPOLLIN | EPOLLRDHUP
            if self.shut == BOTH:
                ready |= EPOLLHUP
        return ready

    def shutdown(self, how: int) -> int:
        self.note_shut(how)
        self.changed()
        return 0 if self.peer_name is not None else -errno.ENOTCONN

    def receive(self, peeks: bool = False) -> tuple[bytes, Any] | int:
        """Return the oldest datagram and its sender's address, or the negative error number."""
        if self.error:
            return -self.take_error()
        if not self.waiting:
            return AGAIN
        if peeks:
            return self.waiting[0]  # type: ignore[no-any-return]
        datagram: tuple[bytes, Any] = self.waiting.popleft()
        self._waiting_size -= len(datagram[0])
        return datagram

    def read(self, limit: int) -> bytes | int:
        received = self.receive()
        return received if isinstance(received, int) else received[0][:limit]

    def peek(self, limit: int) -> bytes | int:
        received = self.receive(peeks=True)
        return received if isinstance(received, int) else received[0][:limit]

    def unread(self) -> int:
        return len(self.waiting[0][0]) if self.waiting else 0

    def write(self, data: bytes) -> int:
        return self.send_to(data, None)

    def send_to(self, data: bytes, address: Any) -> int:
        """Send one datagram; to the peer if the address is None. Return its size."""
        raise NotImplementedError

    def knows(self, ip: str) -> bool:
        """Return whether an address is known to be numeric, and of the socket's family."""
        return False

    def arrive(self, data: bytes, address: Any) -> None:
        """Take a datagram, or drop it if too many wait."""
        if self.references <= 0 or self._waiting_size + len(data) > BUFFER:
            return
        self._waiting_size += len(data)
        self.waiting.append((data, address))
        self.changed()

    def disconnect(self) -> int:
        """Take datagrams of all senders again."""
        self.peer_name = None
        return 0


class Route:
    """The way to another host: the line, the own address on it, and the address there."""

    def __init__(self, machine: NetMachine, target: NetMachine, to: str) -> None:
        self.target: NetMachine = target
        self.line: Line = machine.network.line(machine, target)
        self.source: str = machine.address_for(to)
        self.to: str = to
        self.is_group: bool = to == BROADCAST or _is_group(to)


class Arrival(Event):
    """The arrival of a datagram at another host; `packet` is what a trace shows of it."""

    def __init__(self, sender: UdpSocket, route: Route, port: int, data: bytes, packet: Any) -> None:
        self.sender: UdpSocket = sender
        self.route: Route = route
        self.port: int = port
        self.data: bytes = data
        self.packet: Any = packet

    def happen(self) -> None:
        route = self.route
        if route.target.is_off or route.line.blocked:
            if self.packet is not None:
                self.packet.is_lost = True
        elif route.is_group:
            self.sender._reach_many(route, self.port, self.data)
        else:
            self.sender._reach(route, self.port, self.data)


class UdpSocket(DatagramFile):
    """A UDP socket of IPv4 or IPv6."""

    def __init__(self, machine: NetMachine, family: int, kind: int, protocol: int) -> None:
        super().__init__(machine, family, kind, protocol or socket.IPPROTO_UDP)
        self._port = 0
        self.groups: set[str] = set()
        self._routes: dict[str, Route] = {}  # by address
        self._changes = -1  # of the network, when the routes were asked for

    def bind(self, address: Any) -> int:
        if self._port:
            return -errno.EINVAL
        ip = plain(address[0])
        is_group = _is_group(ip)
        if ip not in ANY and not is_group and self.machine.address_for(ip) != ip:
            return -errno.EADDRNOTAVAIL
        port = self.machine.udp_ports.bind(self, ip, address[1], self.machine.now())
        if port < 0:
            return port
        self._port = port
        self.name: Any = self.shown(ip, port)
        return 0

    def set_option(self, level: int, option: int, value: Any) -> int:
        code = super().set_option(level, option, value)
        if level == socket.IPPROTO_IP and option in (socket.IP_ADD_MEMBERSHIP, socket.IP_DROP_MEMBERSHIP):
            group = socket.inet_ntop(socket.AF_INET, value[:4])
            code = self._change_group(group, option == socket.IP_ADD_MEMBERSHIP)
        elif level == socket.IPPROTO_IPV6 and option in (socket.IPV6_JOIN_GROUP, socket.IPV6_LEAVE_GROUP):
            group = socket.inet_ntop(socket.AF_INET6, value[:16])
            code = self._change_group(group, option == socket.IPV6_JOIN_GROUP)
        return code

    def _change_group(self, group: str, joins: bool) -> int:
        if not _is_group(group):
            return -errno.EINVAL
        if joins == (group in self.groups):
            return -errno.EADDRINUSE if joins else -errno.EADDRNOTAVAIL
        (self.groups.add if joins else self.groups.remove)(group)
        return 0

    def connect(self, address: Any) -> int:
        ip = plain(address[0])
        if not address[1]:
            return -errno.EINVAL
        if code := self._ensure_port():
            return code
        self.name = self.shown(self.machine.address_for(ip), self._port)
        self.peer_name: Any = self.shown(ip, address[1])
        return 0

    def _ensure_port(self) -> int:
        return 0 if self._port else self.bind(self.no_name())

    def send_to(self, data: bytes, address: Any) -> int:
        if len(data) > _LARGEST_PACKET:
            return -errno.EMSGSIZE
        if address is None:
            address = self.peer_name
            if address is None:
                return -errno.EDESTADDRREQ
        ip, port = address[0], address[1]
        if not port:
            return -errno.EINVAL
        if len(data) > _LARGEST:
            return -errno.EMSGSIZE
        if self.error:
            return -self.take_error()
        if self.shut & WRITING:
            return -errno.EPIPE
        network = self.machine.network
        if self._changes != network.changes:
            self._routes.clear()
            self._changes = network.changes
        route = self._routes.get(ip)
        if route is not None and self._port and len(data) <= _ALWAYS_FITS:
            self._send_on_line(route, port, data)
            return len(data)
        ip = plain(ip)
        if ip == BROADCAST and not self.is_set(socket.SOL_SOCKET, socket.SO_BROADCAST):
            return -errno.EACCES
        if code := self._ensure_port():
            return code
        if _is_group(ip) or ip == BROADCAST:
            for machine in network.all_machines():  # type: ignore[attr-defined]
                self._send_on_line(Route(self.machine, machine, ip), port, data)
            return len(data)
        if ip in ANY:
            ip = "::1" if is_ipv6(ip) else "127.0.0.1"
        target = network.machine_at(ip, self.machine)
        if target is not None:
            if len(data) > _ALWAYS_FITS and self._needs_fragments(target, len(data)):
                return -errno.EMSGSIZE
            route = self._routes[ip] = Route(self.machine, target, ip)
            self._send_on_line(route, port, data)
        return len(data)

    def knows(self, ip: str) -> bool:
        return ip in self._routes and is_ipv6(ip) == (self.family == AF_INET6)

    def _needs_fragments(self, target: NetMachine, size: int) -> bool:
        """Return whether a datagram is too large for its way, and may not be cut into fragments."""
        if self.options.get((socket.IPPROTO_IP, _MTU_DISCOVER)) != _ALWAYS_DISCOVER or target is self.machine:
            return False
        return size + _HEADERS > self.machine.network.line(self.machine, target).quality.mtu

    def _send_on_line(self, route: Route, port: int, data: bytes) -> None:
        line = route.line
        if line.held is not None:
            line.held.append((self._depart, (route, port, data)))
        elif line.is_lost():
            line.note("datagram", self, None, len(data), self.machine.now(), -1, (route.to, port))
        else:
            self._depart(route, port, data)

    def _depart(self, route: Route, port: int, data: bytes) -> None:
        machine, line = self.machine, route.line
        now = machine.time()
        size = len(data)
        for _ in range(2 if line.is_doubled() else 1):
            took = line.travel(now, size) + line.overtaken()
            packet = None
            if line.packets is not None:
                packet = line.note("datagram", self, None, size, now, took, (route.to, port))
            machine.send(took, Arrival(self, route, port, data, packet))

    def _reach(self, route: Route, port: int, data: bytes) -> None:
        """Arrive at the other host."""
        target, source = route.target, route.source
        taking = []
        for each in target.udp_ports.bound(port):
            sock: UdpSocket = each[1]
            if sock.takes_from(source, self._port):
                taking.append(each)
        found = nearest(route.to, taking)
        if found:
            sock = found[0]
            sock.arrive(data, sock.shown(source, self._port))
            return
        back = self.machine.network.line(target, self.machine)
        if not back.is_lost():
            took = back.travel(target.time(), 0)
            back.note("unreachable", None, self, 0, target.time(), took)
            target.post(took, self._unreachable, (route.to, port))

    def _reach_many(self, route: Route, port: int, data: bytes) -> None:
        """Arrive at one of the hosts of a group, or of all."""
        ports, ip = route.target.udp_ports, route.to
        if ip == BROADCAST:
            found = ports.find("0.0.0.0", port, lambda sock: True)
        else:
            found = ports.find("0.0.0.0", port, lambda sock: ip in sock.groups)
            found += ports.find(ip, port, lambda sock: sock.name[0] == ip)
        for sock in found:
            sock.arrive(data, sock.shown(route.source, self._port))

    def takes_from(self, ip: str, port: int) -> bool:
        """Return whether the socket takes datagrams of a sender: a connected one only those of its peer."""
        peer = self.peer_name
        return peer is None or (plain(peer[0]), peer[1]) == (ip, port)

    def _unreachable(self, ip: str, port: int) -> None:
        """Handle the news that nobody has a port: only a connected socket hears of it (man 7 udp)."""
        if self.peer_name is not None and (plain(self.peer_name[0]), self.peer_name[1]) == (ip, port):
            self.error: int = errno.ECONNREFUSED
            self.changed()

    def released(self) -> None:
        if self._port:
            self.machine.udp_ports.unbind(self, self._port)
            self._port = 0


@lru_cache(maxsize=_KNOWN)
def _is_group(ip: str) -> bool:
    """Return whether an address is one of multicast."""
    if is_ipv6(ip):
        return ip.lower().startswith("ff")
    first = ip.partition(".")[0]
    return first.isdecimal() and 224 <= int(first) <= 239


def membership(group: str, interface: str = "0.0.0.0") -> bytes:
    """Return the option by which a socket of IPv4 joins a group."""
    return struct.pack("4s4s", socket.inet_aton(group), socket.inet_aton(interface))
