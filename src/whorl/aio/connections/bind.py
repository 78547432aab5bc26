"""The sockets of servers, bound to hosts and to paths."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from whorl.aio.connections.connect import bind_error
from whorl.aio.connections.resolver import AddressInfo, resolve_or_raise
from whorl.aio.interop.at_import import logger
from whorl.core.kernel.errors import check_result, os_error

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop

# Before 3.13, an address that this machine does not have raised a special error. And an empty list of hosts
# was no error.
_NAMES_ABSENT_ADDRESS = _SERVES_NO_HOSTS = sys.version_info < (3, 13)

# Hosts.


async def bind_hosts(
    loop: AnyLoop,
    host: Any,
    port: Any,
    family: int,
    flags: int,
    *,
    reuse_address: bool | None,
    reuse_port: bool | None,
    keep_alive: bool | None,
) -> list[Any]:
    """Return a bound socket for each address of one host or of several; no host means all addresses."""
    infos = await _resolve_hosts(loop, host, port, family, flags)
    if reuse_address is None:
        reuse_address = os.name == "posix" and sys.platform != "cygwin"
    options = Options(bool(reuse_address), bool(reuse_port), bool(keep_alive))
    return _bind_all(loop, infos, options)


class Options:
    """The socket options that a caller may choose."""

    def __init__(self, reuse_address: bool, reuse_port: bool, keep_alive: bool) -> None:
        self.reuse_address = reuse_address
        self.reuse_port = reuse_port
        self.keep_alive = keep_alive


async def _resolve_hosts(loop: AnyLoop, host: Any, port: Any, family: int, flags: int) -> list[AddressInfo]:
    """Return the addresses of all hosts, each once."""
    hosts: Iterable[Any] = [None if host == "" else host]
    if isinstance(host, Iterable) and not isinstance(host, str):
        hosts = host
    resolving = (
        resolve_or_raise(loop, (each, port), names_host=True, family=family, flags=flags) for each in hosts
    )
    found = await asyncio.tasks.gather(*resolving)
    return list(dict.fromkeys(info for infos in found for info in infos))


def _bind_all(loop: AnyLoop, infos: list[AddressInfo], options: Options) -> list[Any]:
    """Return a bound socket for each address, except for families that this machine does not have."""
    sockets: list[Any] = []
    absent: OSError | None = None
    try:
        for info in infos:
            sock = _open(loop, info)
            if sock is None:
                continue
            sockets.append(sock)
            _configure(loop, sock, info[0], options)
            result = loop._kernel.bind(sock, info[4])
            if result == -errno.EADDRNOTAVAIL:
                # IPv6 may be compiled in and turned off.
                absent = bind_error(result, info[4])
                loop._kernel.close_socket(sockets.pop())
                if loop._debug:
                    logger.warning("%s", absent.strerror)
            elif result < 0:
                raise bind_error(result, info[4])
        if not sockets and (infos or not _SERVES_NO_HOSTS):
            if absent is not None and _NAMES_ABSENT_ADDRESS:
                raise absent
            raise OSError(f"could not bind on any address out of {[info[4] for info in infos]!r}")
    except BaseException:
        for sock in sockets:
            loop._kernel.close_socket(sock)
        raise
    return sockets


def _open(loop: AnyLoop, info: AddressInfo) -> Any:
    """Return a socket for an address, or None if there are no sockets of its kind."""
    family, kind, protocol = info[:3]
    sock = loop._kernel.open_socket(family, kind, protocol)
    if not isinstance(sock, int):
        return sock
    if loop._debug:
        logger.warning(
            "create_server() failed to create socket.socket(%r, %r, %r): %s",
            family,
            kind,
            protocol,
            os_error(sock),
        )
    return None


def _configure(loop: AnyLoop, sock: Any, family: int, options: Options) -> None:
    set_option = loop._kernel.set_option
    if options.reuse_address:
        check_result(set_option(sock, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1))
    if options.reuse_port:
        set_reuse_port(loop, sock)
    if options.keep_alive:
        check_result(set_option(sock, socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1))
    if family == socket.AF_INET6:
        # The IPv4 address gets another socket.
        check_result(set_option(sock, socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1))


def set_reuse_port(loop: AnyLoop, sock: Any) -> None:
    """Let other sockets that agree to it bind to the same port."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise ValueError("reuse_port not supported by socket module")
    if loop._kernel.set_option(sock, socket.SOL_SOCKET, socket.SO_REUSEPORT, 1) < 0:
        raise ValueError(
            "reuse_port not supported by socket module, SO_REUSEPORT defined but not implemented."
        )


# Paths.


def bind_path(loop: AnyLoop, path: str | bytes, mode: int | None) -> Any:
    """Return a socket at a path, in the place of a socket that an earlier server left there."""
    kernel = loop._kernel
    sock = kernel.open_socket(socket.AF_UNIX, socket.SOCK_STREAM, 0)
    if isinstance(sock, int):
        raise os_error(sock)
    try:
        if not _is_abstract(path):
            remove_stale(loop, path)
        result = kernel.bind(sock, path)
        if result == -errno.EADDRINUSE:
            raise OSError(errno.EADDRINUSE, f"Address {path!r} is already in use")
        check_result(result)
        if mode is not None and not _is_abstract(path):
            check_result(kernel.change_mode(path, mode))
    except BaseException:
        kernel.close_socket(sock)
        raise
    return sock


def remove_stale(loop: AnyLoop, path: str | bytes) -> None:
    """Remove the socket that an earlier server left at a path."""
    found = loop._kernel.path_status(path)
    if isinstance(found, int):
        result = found
    else:
        result = loop._kernel.unlink(path) if stat.S_ISSOCK(found[0]) else 0
    if result < 0 and result != -errno.ENOENT:
        # The bind may work all the same, in a directory that only lets us make files.
        logger.error("Unable to check or remove stale UNIX socket %r: %r", path, os_error(result))


def path_of(loop: AnyLoop, sock: Any) -> tuple[str | bytes, int] | None:
    """Return the path of a UNIX socket in the file system, and its inode number; None if it is not there."""
    path = loop._kernel.socket_name(sock)
    if isinstance(path, int) or _is_abstract(path):
        return None
    found = loop._kernel.path_status(path)
    return None if isinstance(found, int) else (path, found[1])


def remove_path(loop: AnyLoop, path: str | bytes, inode: int) -> None:
    """Remove a UNIX socket, unless something else took its place."""
    found = loop._kernel.path_status(path)
    if isinstance(found, int):
        result = found
    else:
        result = loop._kernel.unlink(path) if found[1] == inode else 0
    if result < 0 and result != -errno.ENOENT:
        logger.error("Unable to clean up listening UNIX socket %r: %r", path, os_error(result))


def _is_abstract(path: str | bytes) -> bool:
    return path[0] in (0, "\0")  # An empty path is an IndexError, as in asyncio.
