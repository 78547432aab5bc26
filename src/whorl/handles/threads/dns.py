"""Name resolution in the thread pool, as slow work."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.handles.threads.thread_pool import Work

if TYPE_CHECKING:
    from whorl.core.loop.loop import Loop


def getaddrinfo(
    loop: Loop,
    host: bytes | str | None,
    port: bytes | str | int | None,
    callback: Callable[[Work, list[tuple[Any, ...]] | None, BaseException | None], object],
    *,
    family: int = 0,
    type: int = 0,  # noqa: A002 - as the socket module names it
    proto: int = 0,
    flags: int = 0,
) -> Work:
    """Find the addresses of a host and a service (libuv: ``uv_getaddrinfo``).

    The loop calls `callback(request, addresses, error)`; `addresses` is the result of `socket.getaddrinfo`,
    `error` its exception.

    Raises ValueError for a name with a zero byte in it, which the system would cut off there.
    """
    if (isinstance(host, bytes) and b"\0" in host) or (isinstance(host, str) and "\0" in host):
        raise ValueError(f"a zero byte in the name of a host: {host!r}")
    resolve = functools.partial(loop._host.getaddrinfo, host, port, family, type, proto, flags)
    return Work(loop, resolve, callback, slow=True)


def getnameinfo(
    loop: Loop,
    address: tuple[Any, ...],
    callback: Callable[[Work, tuple[str, str] | None, BaseException | None], object],
    *,
    flags: int = 0,
) -> Work:
    """Find the names of an address (libuv: ``uv_getnameinfo``).

    The loop calls `callback(request, names, error)`; `names` are those of the host and of the
    service.
    """
    resolve = functools.partial(loop._host.getnameinfo, address, flags)
    return Work(loop, resolve, callback, slow=True)
