"""Names and addresses: resolution in threads of our own, or in those of the loop's executor."""

from __future__ import annotations

import functools
import socket
from typing import TYPE_CHECKING, Any, TypeAlias

from whorl.aio.connections.name_lookup import look_up
from whorl.aio.interop.at_import import logger
from whorl.core.limits import NUMERIC_ANSWERS

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop

# Family, type, protocol, canonical name, address: a row of socket.getaddrinfo.
AddressInfo: TypeAlias = tuple[Any, Any, int, str, Any]


async def getaddrinfo(
    loop: AnyLoop,
    host: bytes | str | None,
    port: bytes | str | int | None,
    *,
    family: int = 0,
    type: int = 0,  # noqa: A002 - asyncio's name
    proto: int = 0,
    flags: int = 0,
) -> list[Any]:
    """Resolve a name, in the threads of the loop's executor; a numeric host and port need none.

    Source: ``asyncio.loop.getaddrinfo``.
    """
    known = answer_if_numeric(loop, host, port, family, type, proto, flags)
    if known is not None:
        return known
    if loop._debug:
        return await loop.run_in_executor(
            None, _log_getaddrinfo, loop, host, port, family, type, proto, flags
        )
    begun = look_up(loop, host, port, family, type, proto, flags)
    if begun is not None:
        lookups, answer, number = begun
        try:
            return await answer  # type: ignore[no-any-return]
        finally:
            lookups.give_up(number)
    return await loop.run_in_executor(None, loop._host.getaddrinfo, host, port, family, type, proto, flags)


def _log_getaddrinfo(
    loop: AnyLoop, host: Any, port: Any, family: int, kind: int, protocol: int, flags: int
) -> list[Any]:
    """Resolve a name in debug mode, and log how long it took."""
    options = {"family": family, "type": kind, "proto": protocol, "flags": flags}
    words = [f"{host}:{port!r}", *(f"{name}={value!r}" for name, value in options.items() if value)]
    question = ", ".join(words)
    logger.debug("Get address info %s", question)
    began = loop.time()
    answer = loop._host.getaddrinfo(host, port, family, kind, protocol, flags)
    took = loop.time() - began
    report = f"Getting address info {question} took {took * 1e3:.3f}ms: {answer!r}"
    if took >= loop.slow_callback_duration:
        logger.info(report)
    else:
        logger.debug(report)
    return answer


async def getnameinfo(loop: AnyLoop, sockaddr: Any, flags: int = 0) -> tuple[str, str]:
    """Return the names of an address.

    Source: ``asyncio.loop.getnameinfo``.
    """
    return await loop.run_in_executor(None, loop._host.getnameinfo, sockaddr, flags)


# With these, an answer about numbers does not depend on the machine.
_NUMERIC_FLAGS = socket.AI_PASSIVE | socket.AI_NUMERICHOST | socket.AI_NUMERICSERV


def answer_if_numeric(
    loop: AnyLoop, host: Any, port: Any, family: int, kind: int, protocol: int, flags: int
) -> list[AddressInfo] | None:
    """Return the answer of `getaddrinfo` if host and port are plain numbers; None if it must be called.

    It must be called if a program replaced it, if the answer is an error, and for any unusual question.
    """
    if type(host) is not str or (port is not None and type(port) is not int) or not isinstance(flags, int):
        return None
    if not _may_be_number(host):
        return None
    if loop._debug or not loop._host.has_plain_numbers():
        return None
    try:
        answer = _numeric_answer(host, port, family, kind, protocol, flags)
    except TypeError:  # getaddrinfo reports this error
        return None
    return None if answer is None else [answer]


def _may_be_number(host: str) -> bool:
    """Return whether it may be an address: one of IPv4 ends with a digit, one of IPv6 has a colon.

    A zero byte is refused by the function that reads addresses.
    """
    return host[-1:].isdigit() or ":" in host or "\0" in host


@functools.lru_cache(maxsize=NUMERIC_ANSWERS, typed=True)
def _numeric_answer(
    host: str, port: int | None, family: int, kind: int, protocol: int, flags: int
) -> AddressInfo | None:
    if flags & ~_NUMERIC_FLAGS or kind not in _PROTOCOLS or protocol not in (0, _PROTOCOLS[kind]):
        return None
    if port is not None and not 0 <= port <= 65535:
        return None
    for candidate in (socket.AF_INET, socket.AF_INET6):
        if family not in (0, candidate):
            continue
        try:
            host = socket.inet_ntop(candidate, socket.inet_pton(candidate, host))
        except (OSError, ValueError):
            continue
        address = (host, port or 0) if candidate == socket.AF_INET else (host, port or 0, 0, 0)
        return candidate, _KINDS[kind], _PROTOCOLS[kind], "", address
    return None


async def ensure_resolved(
    face: AnyLoop,
    address: Any,
    *,
    family: int = 0,
    type: int = socket.SOCK_STREAM,  # noqa: A002 - asyncio's name
    proto: int = 0,
    flags: int = 0,
    loop: Any,
) -> list[AddressInfo]:
    """Return the addresses of a host and port; a numeric host is answered without a call of `getaddrinfo`.

    The loop calls this by the name that asyncio has for it, for programs that replace it there.
    """
    host, port = address[:2]
    known = numeric_address(host, port, family, type, proto, *address[2:])
    if known is not None:
        return [known]
    infos: list[AddressInfo] = await loop.getaddrinfo(
        host, port, family=family, type=type, proto=proto, flags=flags
    )
    return infos


async def resolve_or_raise(
    loop: AnyLoop, address: Any, *, names_host: bool = False, **options: int
) -> list[AddressInfo]:
    """Return the addresses of a host and port, at least one; an error shows the host if `names_host`."""
    infos = await loop._ensure_resolved(address, loop=loop, **options)
    if not infos:
        host = repr(address[0]) if names_host else ""
        raise OSError(f"getaddrinfo({host}) returned empty list")
    return infos


_PROTOCOLS: dict[int, int] = {
    int(socket.SOCK_STREAM): int(socket.IPPROTO_TCP),
    int(socket.SOCK_DGRAM): int(socket.IPPROTO_UDP),
}
_KINDS = {int(kind): kind for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)}


def numeric_address(
    host: Any, port: Any, family: int, kind: int, protocol: int, flow_info: int = 0, scope_id: int = 0
) -> AddressInfo | None:
    """Return the answer of getaddrinfo if `host` and `port` are numbers; None if they must be resolved."""
    if host is None or protocol not in (0, *_PROTOCOLS.values()) or kind not in _PROTOCOLS:
        return None
    number = _port_number(port)
    if isinstance(host, bytes):
        host = host.decode("idna")
    if number is None or "%" in host:  # getaddrinfo has to interpret a zone.
        return None
    if type(host) is str and not _may_be_number(host):
        return None
    families = (socket.AF_INET, socket.AF_INET6) if family == socket.AF_UNSPEC else (family,)
    for candidate in families:
        try:
            socket.inet_pton(candidate, host)
        except OSError:
            continue
        address: tuple[Any, ...] = (host, number)
        if candidate == socket.AF_INET6:
            address += (flow_info, scope_id)
        return candidate, kind, int(_PROTOCOLS[kind]), "", address
    return None


def _port_number(port: Any) -> int | None:
    """Return the number of a port, or None if it is the name of a service."""
    if port is None or port in (b"", ""):
        return 0
    try:
        return int(port)
    except (TypeError, ValueError):
        return None
