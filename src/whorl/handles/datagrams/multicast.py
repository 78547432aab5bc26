"""Multicast groups: the socket options that join and leave them, and direct datagrams to them."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from whorl.core.kernel.errors import os_error
from whorl.handles.addresses import family_of_host

if TYPE_CHECKING:
    from typing import TypeAlias

    # The level and the name of a socket option, and its value.
    Option: TypeAlias = tuple[int, int, bytes | int]
    # The number of a network interface, or a negative error number.
    InterfaceIndex: TypeAlias = Callable[[str], int]

# Linux's numbers, of which Python names only some (<linux/in.h>).
_IP_ADD_SOURCE_MEMBERSHIP, _IP_DROP_SOURCE_MEMBERSHIP = 39, 40
_MCAST_JOIN_SOURCE_GROUP, _MCAST_LEAVE_SOURCE_GROUP = 46, 47


def membership(group: str, interface: str | None, join: bool, index_of: InterfaceIndex) -> Option:
    """Join or leave a group at an interface (man 7 ip, IP_ADD_MEMBERSHIP; man 7 ipv6)."""
    if family_of_host(group) == socket.AF_INET:
        option = socket.IP_ADD_MEMBERSHIP if join else socket.IP_DROP_MEMBERSHIP
        return socket.IPPROTO_IP, option, _ipv4(group) + _ipv4(interface)
    option = socket.IPV6_JOIN_GROUP if join else socket.IPV6_LEAVE_GROUP
    return socket.IPPROTO_IPV6, option, _ipv6(group) + struct.pack("=I", _index(interface, index_of))


def source_membership(
    group: str, interface: str | None, source: str, join: bool, index_of: InterfaceIndex
) -> Option:
    """Join or leave a group, as far as one sender is concerned (man 7 ip, IP_ADD_SOURCE_MEMBERSHIP)."""
    if family_of_host(group) != family_of_host(source):
        raise os_error(errno.EINVAL)
    if family_of_host(group) == socket.AF_INET:
        option = _IP_ADD_SOURCE_MEMBERSHIP if join else _IP_DROP_SOURCE_MEMBERSHIP
        return socket.IPPROTO_IP, option, _ipv4(group) + _ipv4(interface) + _ipv4(source)
    option = _MCAST_JOIN_SOURCE_GROUP if join else _MCAST_LEAVE_SOURCE_GROUP
    addresses = [struct.pack("=HHI", socket.AF_INET6, 0, 0) + _ipv6(host) for host in (group, source)]
    # struct group_source_req: the interface, and two sockaddr_storage at the next multiple of 8.
    value = struct.pack("=I4x128s128s", _index(interface, index_of), *addresses)
    return socket.IPPROTO_IPV6, option, value


def outgoing_interface(family: int, interface: str | None, index_of: InterfaceIndex) -> Option:
    """Return the option for the interface by which datagrams to a group leave; None: the system chooses."""
    if interface is not None and family_of_host(interface) != family:
        raise os_error(errno.EINVAL)
    if family == socket.AF_INET:
        return socket.IPPROTO_IP, socket.IP_MULTICAST_IF, _ipv4(interface)
    return socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, _index(interface, index_of)


def _ipv4(host: str | None) -> bytes:
    if host is None:
        return bytes(4)
    if family_of_host(host) != socket.AF_INET:
        raise os_error(errno.EINVAL)
    return socket.inet_pton(socket.AF_INET, host)


def _ipv6(host: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6, host.partition("%")[0])


def _index(interface: str | None, index_of: InterfaceIndex) -> int:
    """Return the interface that the zone of an IPv6 address names: "::%eth0"; 0 without one."""
    if interface is None:
        return 0
    if family_of_host(interface) != socket.AF_INET6:
        raise os_error(errno.EINVAL)
    zone = interface.partition("%")[2]
    index = index_of(zone) if zone else 0
    if index < 0:
        raise os_error(index)
    return index
