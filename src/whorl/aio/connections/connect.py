"""Connections that the loop makes or is given: to hosts, to UNIX sockets, over sockets made elsewhere."""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import socket
import sys
from asyncio import staggered
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, TypeVar

try:
    import ssl as ssl_module
except ImportError:
    ssl_module = None  # type: ignore[assignment]

from whorl.aio.connections import sendfile as _sendfile  # noqa: F401 - for connections that use it late
from whorl.aio.connections import start_tls as _start_tls  # noqa: F401 - for those that use it late
from whorl.aio.connections.arguments import (
    check_host_or_socket,
    check_path_or_socket,
    check_server_hostname,
    check_tls_timeouts,
)
from whorl.aio.connections.resolver import AddressInfo, resolve_or_raise
from whorl.aio.interop import at_import
from whorl.aio.interop.at_import import logger
from whorl.aio.sockets.checks import check_plain_socket, check_stream_socket
from whorl.aio.sockets.connect_attempt import ConnectAttempt
from whorl.aio.sockets.connect_plain import (
    begin_transport,
    connect_descriptor,
    connect_to_numbers,
    is_stock_loop,
    open_transport,
    transport_over_socket,
)
from whorl.aio.sockets.connect_race import first_of
from whorl.aio.sockets.sock_methods import connected
from whorl.aio.sockets.watch import release_fd_for_transport
from whorl.aio.transports.public import SocketTransport
from whorl.aio.transports.tls import TLSProtocol
from whorl.core.kernel.errors import os_error
from whorl.core.kernel.sockets import ACCEPTED_FAMILIES

if TYPE_CHECKING:
    from ssl import SSLContext
    from typing import TypeAlias

    from whorl.aio.loop_type import AnyLoop

    ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)
    SSL: TypeAlias = "bool | SSLContext | None"

AF_UNIX = int(socket.AF_UNIX)

# Since 3.13 the text of an error that names an address also has its number.
_SHOWS_ERROR_NUMBERS = sys.version_info >= (3, 13)


# To hosts.


async def create_connection(
    loop: AnyLoop,
    protocol_factory: Callable[[], ProtocolT],
    host: str | None = None,
    port: int | str | None = None,
    *,
    ssl: SSL = None,
    family: int = 0,
    proto: int = 0,
    flags: int = 0,
    sock: Any = None,
    local_addr: Any = None,
    server_hostname: str | None = None,
    ssl_handshake_timeout: float | None = None,
    ssl_shutdown_timeout: float | None = None,
    happy_eyeballs_delay: float | None = None,
    interleave: int | None = None,
    all_errors: bool = False,
) -> tuple[asyncio.Transport, ProtocolT]:
    """Connect to a host and port, or take over a connected stream socket.

    Source: ``asyncio.loop.create_connection``.
    """
    is_tls = ssl or server_hostname is not None
    if is_tls or ssl_handshake_timeout is not None or ssl_shutdown_timeout is not None:
        if ssl and server_hostname is None:
            server_hostname = host or None
        missing = "You must set server_hostname when using ssl without a host"
        check_server_hostname(ssl, server_hostname, missing)
        check_tls_timeouts(ssl, ssl_handshake_timeout, ssl_shutdown_timeout)
    if sock is not None or host is None:
        check_host_or_socket(host, port, sock, "host and port was not specified and no sock specified")
    if sock is None:
        target: Any = (host, port)
        race = happy_eyeballs_delay, interleave, all_errors
        is_usual = local_addr is None and race == (None, None, False)
        attempt = connect_to_numbers(loop, host, port, family, proto, flags) if is_usual else None
        if attempt is None:
            options = {"family": family, "proto": proto, "flags": flags}
            only_one = is_usual and not ssl
            attempt, target = await _connect_by_name(loop, target, options, local_addr, race, only_one)
        if type(attempt) is ConnectAttempt:
            if not ssl:
                return await _open_plain(attempt, target, protocol_factory)
            timeouts = ssl_handshake_timeout, ssl_shutdown_timeout
            return await _open_tls(loop, attempt, target, protocol_factory, ssl, server_hostname, timeouts)
        sock = attempt  # A program has replaced a method: this is a socket.
    transport, protocol = await loop._create_connection_transport(
        sock,
        protocol_factory,
        ssl,
        server_hostname,
        ssl_handshake_timeout=ssl_handshake_timeout,
        ssl_shutdown_timeout=ssl_shutdown_timeout,
    )
    if loop._debug:
        shown = transport.get_extra_info("socket")
        logger.debug("%r connected to %s:%r: (%r, %r)", shown, host, port, transport, protocol)
    return transport, protocol


async def _connect_by_name(
    loop: AnyLoop,
    target: tuple[Any, Any],
    options: dict[str, Any],
    local_addr: Any,
    race: tuple[float | None, int | None, bool],
    only_one: bool,
) -> tuple[Any, Any]:
    """Return a socket, and what it connects to: the first of the addresses of a name that answers.

    With `only_one`, the socket may still be connecting if the name has only one address.
    """
    infos = await resolve_or_raise(loop, target, **options)
    local_infos = None if local_addr is None else await resolve_or_raise(loop, local_addr, **options)
    if only_one and len(infos) == 1:
        attempt = _connect_only(loop, infos[0])
        if attempt is not None:
            return attempt, infos[0][4]
    return await _connect_any(loop, infos, local_infos, *race), target


def _connect_only(loop: AnyLoop, info: AddressInfo) -> ConnectAttempt | None:
    """Begin to connect to the only address of a name; None if it is not a usual one."""
    family, kind, protocol, _, address = info
    if kind != socket.SOCK_STREAM or family not in ACCEPTED_FAMILIES or not is_stock_loop(loop):
        return None
    return connect_descriptor(loop, family, protocol, address)


async def _open_plain(
    attempt: ConnectAttempt, address: Any, protocol_factory: Callable[[], ProtocolT]
) -> tuple[asyncio.Transport, ProtocolT]:
    """Connect a socket that has no object; return a protocol and its transport, once both know each other."""
    try:
        await attempt
        transport, protocol, wait = open_transport(attempt, address, protocol_factory)
    except BaseException:
        attempt.give_up()
        raise
    try:
        await wait
    except BaseException:
        transport.close()
        raise
    return transport, protocol


async def _open_tls(
    loop: AnyLoop,
    attempt: ConnectAttempt,
    address: Any,
    protocol_factory: Callable[[], ProtocolT],
    ssl: SSL,
    server_hostname: str | None,
    timeouts: tuple[float | None, float | None],
) -> tuple[asyncio.Transport, ProtocolT]:
    """Do the same for TLS; return when the handshake is done."""
    transport: Any = None
    try:
        await attempt
        attempt.check(address)
        protocol = protocol_factory()
        waiter = loop.create_future()
        context = None if isinstance(ssl, bool) else ssl
        tls = TLSProtocol(loop, protocol, context, waiter, False, server_hostname, True, *timeouts)
        transport = tls._app_transport
        begin_transport(attempt, tls, None)
    except BaseException:
        attempt.give_up()
        if transport is not None:
            transport.close()
        raise
    try:
        await waiter
    except BaseException:
        transport.close()
        raise
    finally:
        del waiter, tls  # An exception must not keep the protocol alive.
    return transport, protocol


def interleaved(infos: Iterable[AddressInfo], first_family_count: int = 1) -> list[AddressInfo]:
    """Return the addresses with their families taking turns; the first family begins with so many."""
    by_family: dict[int, list[AddressInfo]] = {}
    for info in infos:
        by_family.setdefault(info[0], []).append(info)
    families = list(by_family.values())
    lead = first_family_count - 1 if first_family_count > 1 else 0
    head, families[0] = families[0][:lead], families[0][lead:]
    rounds = itertools.zip_longest(*families)
    return head + [info for row in rounds for info in row if info is not None]


async def _connect_any(
    loop: AnyLoop,
    infos: list[AddressInfo],
    local_infos: list[AddressInfo] | None,
    delay: float | None,
    interleave: int | None,
    all_errors: bool,
) -> Any:
    """Return a socket connected to the first of the addresses that answers."""
    if interleave or (interleave is None and delay is not None):
        infos = interleaved(infos, interleave or 1)
    failures: list[list[OSError]] = []  # one list for each address that was tried
    sock = None
    try:
        if delay is None:
            for info in infos:
                try:
                    sock = await _connect_one(loop, failures, info, local_infos)
                    break
                except OSError:
                    continue
        else:
            attempts = [functools.partial(_connect_one, loop, failures, info, local_infos) for info in infos]
            if staggered.staggered_race is at_import.staggered_race:
                sock = await first_of(loop, attempts, delay, functools.partial(_give_up, loop))
            else:  # A program has replaced it.
                sock = (await staggered.staggered_race(attempts, delay, loop=loop))[0]
        if sock is None:
            raise _combined([error for errors in failures for error in errors], all_errors)
        return sock
    finally:
        failures.clear()  # Their tracebacks refer to this frame.


def _combined(errors: list[OSError], all_errors: bool) -> Exception:
    """Return the one exception for all failed attempts."""
    if all_errors:
        return ExceptionGroup("create_connection failed", errors)
    if not errors:
        return TimeoutError("create_connection failed")
    if len({str(error) for error in errors}) == 1:
        return errors[0]
    return OSError(f"Multiple exceptions: {', '.join(map(str, errors))}")


async def _connect_one(
    loop: AnyLoop, failures: list[list[OSError]], info: AddressInfo, local_infos: list[AddressInfo] | None
) -> Any:
    """Make, bind and connect one socket; record the errors."""
    errors: list[OSError] = []
    failures.append(errors)
    family, kind, protocol, _, address = info
    sock = None
    try:
        is_plain = local_infos is None and family in ACCEPTED_FAMILIES and kind == socket.SOCK_STREAM
        if is_plain and is_stock_loop(loop):
            attempt = connect_descriptor(loop, family, protocol, address)
            if attempt is not None:
                return await connected(attempt, address)
        sock = loop._kernel.open_socket(family, kind, protocol)
        if isinstance(sock, int):
            code, sock = sock, None
            raise os_error(code)
        if local_infos is not None:
            _bind_local(loop, sock, family, local_infos, errors)
        await loop.sock_connect(sock, address)
        return sock
    except BaseException as error:
        if isinstance(error, OSError):
            errors.append(error)
        if sock is not None:
            loop._kernel.close_socket(sock)
        raise
    finally:
        del errors, failures  # Their tracebacks refer to this frame.


def _give_up(loop: AnyLoop, sock: Any) -> None:
    """Close a connected socket that nobody wants."""
    if type(sock) is ConnectAttempt:
        sock.give_up()
    else:
        loop._kernel.close_socket(sock)


def _bind_local(
    loop: AnyLoop, sock: Any, family: int, local_infos: list[AddressInfo], errors: list[OSError]
) -> None:
    """Bind to the first local address that is of this family and is available."""
    for local_family, _, _, _, address in local_infos:
        if local_family != family:
            continue
        result = loop._kernel.bind(sock, address)
        if result == 0:
            return
        errors.append(bind_error(result, address))
    if errors:
        raise errors.pop()
    raise OSError(f"no matching local address with {family=} found")


def bind_error(code: int, address: Any) -> OSError:
    """Return the error of a `bind`, with the address in its text."""
    error = os_error(code)
    reason = str(error) if _SHOWS_ERROR_NUMBERS else str(error.strerror)
    return OSError(error.errno, f"error while attempting to bind on address {address!r}: {reason.lower()}")


# To UNIX sockets.


async def create_unix_connection(
    loop: AnyLoop,
    protocol_factory: Callable[[], ProtocolT],
    path: Any = None,
    *,
    ssl: SSL = None,
    sock: Any = None,
    server_hostname: str | None = None,
    ssl_handshake_timeout: float | None = None,
    ssl_shutdown_timeout: float | None = None,
) -> tuple[asyncio.Transport, ProtocolT]:
    """Connect to a UNIX socket, by path (text, bytes or a path object) or abstract name.

    Source: ``asyncio.loop.create_unix_connection``.
    """
    assert server_hostname is None or isinstance(server_hostname, str)
    is_tls = ssl or server_hostname is not None
    if is_tls or ssl_handshake_timeout is not None or ssl_shutdown_timeout is not None:
        check_server_hostname(ssl, server_hostname, "you have to pass server_hostname when using ssl")
        check_tls_timeouts(ssl, ssl_handshake_timeout, ssl_shutdown_timeout)
    if sock is not None or path is None:
        check_path_or_socket(path, sock, "no path and sock were specified")
    is_own = sock is None  # and will be made here
    if is_own:
        path = os.fspath(path)
        attempt = connect_descriptor(loop, AF_UNIX, 0, path) if is_stock_loop(loop) else None
        if attempt is not None and not ssl:
            return await _open_plain(attempt, path, protocol_factory)
        if attempt is not None:
            timeouts = ssl_handshake_timeout, ssl_shutdown_timeout
            return await _open_tls(loop, attempt, path, protocol_factory, ssl, server_hostname, timeouts)
        sock = await _connect_path(loop, path)
    transport, protocol = await loop._create_connection_transport(
        sock,
        protocol_factory,
        ssl,
        server_hostname,
        ssl_handshake_timeout=ssl_handshake_timeout,
        ssl_shutdown_timeout=ssl_shutdown_timeout,
    )
    return transport, protocol


async def _connect_path(loop: AnyLoop, path: str | bytes) -> Any:
    sock = loop._kernel.open_socket(socket.AF_UNIX, socket.SOCK_STREAM, 0)
    if isinstance(sock, int):
        raise os_error(sock)
    try:
        await loop.sock_connect(sock, path)
    except BaseException:
        loop._kernel.close_socket(sock)
        raise
    return sock


# Over sockets made elsewhere.


async def connect_accepted_socket(
    loop: AnyLoop,
    protocol_factory: Callable[[], ProtocolT],
    sock: Any,
    *,
    ssl: SSL = None,
    ssl_handshake_timeout: float | None = None,
    ssl_shutdown_timeout: float | None = None,
) -> tuple[asyncio.Transport, ProtocolT]:
    """Serve a connection that was accepted elsewhere.

    Source: ``asyncio.loop.connect_accepted_socket``.
    """
    check_stream_socket(sock)
    check_tls_timeouts(ssl, ssl_handshake_timeout, ssl_shutdown_timeout)
    check_plain_socket(sock)
    transport, protocol = await loop._create_connection_transport(
        sock,
        protocol_factory,
        ssl,
        "",
        server_side=True,
        ssl_handshake_timeout=ssl_handshake_timeout,
        ssl_shutdown_timeout=ssl_shutdown_timeout,
    )
    if loop._debug:
        logger.debug("%r handled: (%r, %r)", transport.get_extra_info("socket"), transport, protocol)
    return transport, protocol


# Transports.


async def create_connection_transport(
    loop: AnyLoop,
    sock: Any,
    protocol_factory: Callable[[], ProtocolT],
    ssl: SSL,
    server_hostname: str | None,
    server_side: bool = False,
    ssl_handshake_timeout: float | None = None,
    ssl_shutdown_timeout: float | None = None,
    context: Context | None = None,
) -> tuple[asyncio.Transport, ProtocolT]:
    """Return a protocol and its transport over a connected socket, once both know each other."""
    try:
        sock.setblocking(False)
        context = copy_context() if context is None else context
        protocol = protocol_factory()
        waiter = loop.create_future()
        transport: Any
        if ssl:
            transport = loop._make_ssl_transport(
                sock,
                protocol,
                None if isinstance(ssl, bool) else ssl,
                waiter,
                server_side=server_side,
                server_hostname=server_hostname,
                ssl_handshake_timeout=ssl_handshake_timeout,
                ssl_shutdown_timeout=ssl_shutdown_timeout,
                context=context,
            )
        else:
            transport = loop._make_socket_transport(sock, protocol, waiter, context=context)
    except BaseException:
        loop._kernel.close_socket(sock)
        raise
    try:
        await waiter
    except BaseException:
        transport.close()
        raise
    finally:
        del waiter  # Its exception must not keep the protocol alive.
    return transport, protocol


def make_socket_transport(
    loop: AnyLoop,
    sock: Any,
    protocol: asyncio.BaseProtocol,
    waiter: asyncio.Future[None] | None = None,
    *,
    extra: dict[str, Any] | None = None,
    server: Any = None,
    context: Context | None = None,
) -> asyncio.Transport:
    """Return a transport over a connected socket; `waiter` is done after `connection_made`."""
    release_fd_for_transport(loop, sock)
    transport: Any = None
    if extra is None and server is None:
        transport = transport_over_socket(loop, sock, protocol, waiter, context)
    if transport is None:
        transport = SocketTransport(loop, sock, protocol, waiter, extra=extra, server=server, context=context)
    return transport  # type: ignore[no-any-return]
