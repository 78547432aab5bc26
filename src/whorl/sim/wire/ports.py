"""The ports of one host, for TCP or for UDP: who has which (man 7 ip, man 7 socket)."""

from __future__ import annotations

import errno
import ipaddress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from whorl.sim.wire.timeline import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_PORT, LAST_PORT = 32768, 60999  # of ports that the system gives (ip_local_port_range)
TIME_WAIT = 60 * SECOND
ANY = ("0.0.0.0", "::")

_NOBODY: list[tuple[str, Any]] = []

#: So many addresses are kept with the host's own on the way to them.
_KNOWN = 1024


class Bound(Protocol):
    """A socket with a port."""

    name: Any

    def reuses_address(self) -> bool: ...
    def reuses_port(self) -> bool: ...
    def is_listening(self) -> bool: ...
    def only_ipv6(self) -> bool: ...


def is_ipv6(ip: str) -> bool:
    """Return whether an address is of IPv6."""
    return ":" in ip


def plain(ip: str) -> str:
    """Return an address as it is usually written, and an IPv4 address for one that is mapped into IPv6."""
    if ip in ANY or not is_ipv6(ip):
        return ip
    address = ipaddress.IPv6Address(ip.partition("%")[0])
    mapped = address.ipv4_mapped
    return str(mapped if mapped is not None else address)


@lru_cache(maxsize=_KNOWN)
def own_address(first: str, addresses: tuple[str, ...], ip: str) -> str:
    """Return which of a host's addresses it has on the way to another one."""
    wide = is_ipv6(ip)
    if ip in addresses or ip == "::1" or (not wide and ip.startswith("127.")):
        return ip
    return next((own for own in addresses if is_ipv6(own) == wide), first)


class PortTable:
    """The bound sockets of one protocol."""

    def __init__(self, first: int) -> None:
        """Give out ports from `first` on."""
        self._sockets: dict[int, list[tuple[str, Bound]]] = {}
        self._next = first
        self._waiting: dict[int, int] = {}  # ports of connections that were closed here, and until when

    def bind(self, sock: Bound, ip: str, port: int, now: int) -> int:
        """Give a socket a port, any one for 0; return it, or the negative error number."""
        if not port:
            for _ in range(LAST_PORT - FIRST_PORT + 1):
                candidate = self._next
                self._next = candidate + 1 if candidate < LAST_PORT else FIRST_PORT
                if candidate not in self._sockets and self._waiting.get(candidate, 0) <= now:
                    port = candidate
                    break
            else:
                return -errno.EADDRINUSE
        elif self._waiting.get(port, 0) > now and not sock.reuses_address():
            return -errno.EADDRINUSE
        others = self._sockets.setdefault(port, [])
        for other_ip, other in others:
            if self._clashes(sock, ip, other, other_ip):
                return -errno.EADDRINUSE
        others.append((ip, sock))
        return port

    def _clashes(self, sock: Bound, ip: str, other: Bound, other_ip: str) -> bool:
        if sock.reuses_port() and other.reuses_port():
            return False
        if sock.reuses_address() and other.reuses_address() and not other.is_listening():
            return False
        if is_ipv6(ip) != is_ipv6(other_ip):
            wide, wide_ip = (sock, ip) if is_ipv6(ip) else (other, other_ip)
            return wide_ip == "::" and not wide.only_ipv6()
        return ip == other_ip or ip in ANY or other_ip in ANY

    def unbind(self, sock: Bound, port: int, waits_until: int = 0) -> None:
        """Take a socket's port away; nobody gets it before a time without SO_REUSEADDR."""
        left = [each for each in self._sockets.get(port, ()) if each[1] is not sock]
        if left:
            self._sockets[port] = left
        else:
            self._sockets.pop(port, None)
        if waits_until:
            self._waiting[port] = waits_until

    def bound(self, port: int) -> list[tuple[str, Any]]:
        """Return the sockets with a port, each after the address that it is bound to; not to be changed."""
        return self._sockets.get(port, _NOBODY)

    def find(self, ip: str, port: int, accepts: Callable[[Any], bool]) -> list[Any]:
        """Return the sockets that get what arrives at an address: several if they share the port."""
        return nearest(ip, [each for each in self.bound(port) if accepts(each[1])])


def nearest(ip: str, bound: list[tuple[str, Any]]) -> list[Any]:
    """Return the sockets that are bound to an address; if there are none, those that are bound to all."""
    exact, wide = [], []
    for bound_ip, sock in bound:
        if bound_ip == ip:
            exact.append(sock)
        elif (bound_ip == "::" and (is_ipv6(ip) or not sock.only_ipv6())) or (
            bound_ip == "0.0.0.0" and not is_ipv6(ip)
        ):
            wide.append(sock)
    return exact or wide
