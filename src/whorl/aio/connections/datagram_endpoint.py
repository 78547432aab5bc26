"""Datagram endpoints: UDP, UNIX and other messages; how they are made."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from whorl.aio.connections.bind import remove_stale, set_reuse_port
from whorl.aio.connections.datagram_transport import DatagramTransport
from whorl.aio.connections.resolver import resolve_or_raise
from whorl.aio.interop.at_import import logger
from whorl.aio.sockets.watch import ensure_no_transport
from whorl.core.kernel.errors import check_result, os_error

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop

    ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)

# Since 3.13, every socket is accepted that is no stream.
_ONLY_DATAGRAM_SOCKETS = sys.version_info < (3, 13)


class _EndpointOptions:
    """The caller's options for an endpoint, in the order in which errors show them."""

    def __init__(
        self,
        local_addr: Any,
        remote_addr: Any,
        family: int,
        proto: int,
        flags: int,
        reuse_port: bool | None,
        allow_broadcast: bool | None,
    ) -> None:
        self.local_addr = local_addr
        self.remote_addr = remote_addr
        self.family = family
        self.proto = proto
        self.flags = flags
        self.reuse_port = reuse_port
        self.allow_broadcast = allow_broadcast


class _Attempt:
    """One way to make an endpoint."""

    def __init__(self, family: int, protocol: int, local: Any, remote: Any) -> None:
        self.family = family
        self.protocol = protocol
        self.local = local
        self.remote = remote


async def create_datagram_endpoint(
    loop: AnyLoop,
    protocol_factory: Callable[[], ProtocolT],
    local_addr: Any = None,
    remote_addr: Any = None,
    *,
    family: int = 0,
    proto: int = 0,
    flags: int = 0,
    reuse_port: bool | None = None,
    allow_broadcast: bool | None = None,
    sock: Any = None,
) -> tuple[asyncio.DatagramTransport, ProtocolT]:
    """Make an endpoint for datagrams, bound and connected as far as addresses are given.

    Source: ``asyncio.loop.create_datagram_endpoint``.
    """
    options = _EndpointOptions(local_addr, remote_addr, family, proto, flags, reuse_port, allow_broadcast)
    _check_arguments(sock, options)
    remote = None
    is_own = sock is None  # and will be made here
    if is_own:
        sock, remote = await _open_any(loop, options, await _attempts(loop, options))
    else:
        sock.setblocking(False)
    try:
        protocol = protocol_factory()
        waiter = loop.create_future()
        transport: Any = loop._make_datagram_transport(sock, protocol, remote, waiter)
    except BaseException:
        if is_own:
            loop._kernel.close_socket(sock)
        raise
    if loop._debug:
        if local_addr:
            logger.info(
                "Datagram endpoint local_addr=%r remote_addr=%r created: (%r, %r)",
                local_addr,
                remote_addr,
                transport,
                protocol,
            )
        else:
            logger.debug(
                "Datagram endpoint remote_addr=%r created: (%r, %r)", remote_addr, transport, protocol
            )
    try:
        await waiter
    except BaseException:
        transport.close()
        raise
    finally:
        del waiter  # Its exception must not keep the protocol alive.
    return transport, protocol


def make_datagram_transport(
    loop: AnyLoop,
    sock: Any,
    protocol: asyncio.BaseProtocol,
    address: Any = None,
    waiter: asyncio.Future[None] | None = None,
    extra: dict[str, Any] | None = None,
) -> asyncio.DatagramTransport:
    """Return a transport over a datagram socket; `waiter` is done after `connection_made`."""
    ensure_no_transport(loop, sock)
    transport: Any = DatagramTransport(loop, sock, protocol, address, waiter, extra)
    return transport  # type: ignore[no-any-return]


def _check_arguments(sock: Any, options: _EndpointOptions) -> None:
    """Refuse what can be refused before a name is resolved."""
    if sock is not None:
        _check_socket(sock, options)
    elif not (options.local_addr or options.remote_addr):
        if options.family == 0:
            raise ValueError("unexpected address family")
    elif options.family == socket.AF_UNIX:
        for address in (options.local_addr, options.remote_addr):
            if address is not None and not isinstance(address, str):
                raise TypeError("string is expected")


def _check_socket(sock: Any, options: _EndpointOptions) -> None:
    """Refuse sockets that are no datagram sockets, and options that come too late."""
    if _ONLY_DATAGRAM_SOCKETS:
        if sock.type != socket.SOCK_DGRAM:
            raise ValueError(f"A UDP Socket was expected, got {sock!r}")
    elif sock.type == socket.SOCK_STREAM:
        raise ValueError(f"A datagram socket was expected, got {sock!r}")
    problems = ", ".join(f"{name}={value}" for name, value in vars(options).items() if value)
    if problems:
        raise ValueError(
            f"socket modifier keyword arguments can not be used when sock is specified. ({problems})"
        )


# Addresses.


async def _attempts(loop: AnyLoop, options: _EndpointOptions) -> list[_Attempt]:
    """Return the addresses to try, one after the other."""
    if options.family == socket.AF_UNIX or not (options.local_addr or options.remote_addr):
        if options.local_addr and options.local_addr[0] != "\0":
            remove_stale(loop, options.local_addr)
        return [_Attempt(options.family, options.proto, options.local_addr, options.remote_addr)]
    found: dict[tuple[int, int], list[Any]] = {}
    for place, address in enumerate((options.local_addr, options.remote_addr)):
        if address is None:
            continue
        if not (isinstance(address, tuple) and len(address) == 2):
            raise TypeError("2-tuple is expected")
        infos = await resolve_or_raise(
            loop,
            address,
            family=options.family,
            type=socket.SOCK_DGRAM,
            proto=options.proto,
            flags=options.flags,
        )
        for family, _, protocol, _, resolved in infos:
            found.setdefault((family, protocol), [None, None])[place] = resolved
    attempts = [
        _Attempt(family, protocol, local, remote)
        for (family, protocol), (local, remote) in found.items()
        if not ((options.local_addr and local is None) or (options.remote_addr and remote is None))
    ]
    if not attempts:
        raise ValueError("can not get address information")
    return attempts


# Sockets.


async def _open_any(loop: AnyLoop, options: _EndpointOptions, attempts: list[_Attempt]) -> tuple[Any, Any]:
    """Return the first socket that can be made, and the address its datagrams go to."""
    errors: list[OSError] = []
    try:
        for attempt in attempts:
            try:
                return await _open_one(loop, options, attempt)
            except OSError as error:
                errors.append(error)
        raise errors[0]
    finally:
        del errors  # Their tracebacks refer to this frame.


async def _open_one(loop: AnyLoop, options: _EndpointOptions, attempt: _Attempt) -> tuple[Any, Any]:
    kernel = loop._kernel
    sock = kernel.open_socket(attempt.family, socket.SOCK_DGRAM, attempt.protocol)
    if isinstance(sock, int):
        raise os_error(sock)
    remote = None
    try:
        if options.reuse_port:
            set_reuse_port(loop, sock)
        if options.allow_broadcast:
            check_result(kernel.set_option(sock, socket.SOL_SOCKET, socket.SO_BROADCAST, 1))
        if options.local_addr:
            check_result(kernel.bind(sock, attempt.local))
        if options.remote_addr:
            if not options.allow_broadcast:
                await loop.sock_connect(sock, attempt.remote)
            remote = attempt.remote
    except BaseException:
        kernel.close_socket(sock)
        raise
    return sock, remote
