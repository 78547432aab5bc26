"""The sock_ methods: sockets of the user's, without transports.

Each tries at once, and waits for the poller only if the call would have blocked.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.aio.connect import check_plain_socket
from whorl.aio.dns import ensure_resolved
from whorl.aio.readers import (
    ensure_no_transport,
    unwatch_reader,
    unwatch_writer,
    watch_reader,
    watch_writer,
)
from whorl.core.handle import os_error

if TYPE_CHECKING:
    from typing import TypeAlias

    from _typeshed import ReadableBuffer, WriteableBuffer

    from whorl.aio.loop import EventLoop

    # Tries once; the result, the negative error number, or None to be tried again.
    Attempt: TypeAlias = Callable[[], Any]

WOULD_BLOCK = (-errno.EAGAIN, -errno.EINTR)


async def sock_recv(loop: EventLoop, sock: Any, nbytes: int) -> bytes:
    """Receive at most `nbytes` from a stream socket; no bytes at its end.

    Source: ``asyncio.loop.sock_recv``.
    """
    _check(loop, sock)
    if nbytes < 0:
        raise ValueError("negative buffersize in recv")
    if nbytes == 0:
        return b""  # The kernel would wait for data.
    fd = sock.fileno()
    data = loop._kernel.recv(fd, nbytes)
    if isinstance(data, int):
        data = await _when_readable(loop, fd, data, lambda: loop._kernel.recv(fd, nbytes))
    return data


async def sock_recv_into(loop: EventLoop, sock: Any, buf: WriteableBuffer) -> int:
    """Receive into a buffer; how many bytes.

    Source: ``asyncio.loop.sock_recv_into``.
    """
    _check(loop, sock)
    fd = sock.fileno()
    try:
        size = loop._kernel.recv_into(fd, buf)
    except BufferError:
        kind = type(buf).__name__
        raise TypeError(f"recv_into() argument 1 must be read-write bytes-like object, not {kind}") from None
    if size < 0:
        if not memoryview(buf).nbytes:
            return 0
        size = await _when_readable(loop, fd, size, lambda: loop._kernel.recv_into(fd, buf))
    return size


async def sock_sendall(loop: EventLoop, sock: Any, data: ReadableBuffer) -> None:
    """Send all of `data`.

    Source: ``asyncio.loop.sock_sendall``.
    """
    _check(loop, sock)
    fd = sock.fileno()
    with memoryview(data) as whole:
        if not whole.c_contiguous:
            raise BufferError("memoryview: underlying buffer is not C-contiguous")
        with whole.cast("B") as rest:
            sent = loop._kernel.send(fd, rest, 0)
            if sent != rest.nbytes:
                await _send_rest(loop, fd, rest, sent)


async def _send_rest(loop: EventLoop, fd: int, data: memoryview, sent: int) -> None:
    done = max(sent, 0)

    def send_more() -> int | None:
        nonlocal done
        result = loop._kernel.send(fd, data, done)
        if result < 0:
            return result
        done += result
        return 0 if done == len(data) else None

    await _when_writable(loop, fd, min(sent, 0), send_more)


async def sock_recvfrom(loop: EventLoop, sock: Any, bufsize: int) -> tuple[bytes, Any]:
    """Receive a datagram, cut to `bufsize` bytes, and its sender's address.

    Source: ``asyncio.loop.sock_recvfrom``.
    """
    _check(loop, sock)
    received = loop._kernel.recvfrom(sock, bufsize)
    if isinstance(received, int):
        received = await _when_readable(
            loop, sock.fileno(), received, lambda: loop._kernel.recvfrom(sock, bufsize)
        )
    return received


async def sock_recvfrom_into(
    loop: EventLoop, sock: Any, buf: WriteableBuffer, nbytes: int = 0
) -> tuple[int, Any]:
    """Receive a datagram into a buffer: how many bytes, at most `nbytes`, and its sender's address.

    Raises ValueError if the buffer is smaller. Source: ``asyncio.loop.sock_recvfrom_into``.
    """
    _check(loop, sock)
    size = nbytes or len(buf)  # type: ignore[arg-type]
    received = loop._kernel.recvfrom_into(sock, buf, size)
    if isinstance(received, int):
        received = await _when_readable(
            loop, sock.fileno(), received, lambda: loop._kernel.recvfrom_into(sock, buf, size)
        )
    return received


async def sock_sendto(loop: EventLoop, sock: Any, data: ReadableBuffer, address: Any) -> int:
    """Send a datagram to an address; how many bytes.

    Source: ``asyncio.loop.sock_sendto``.
    """
    _check(loop, sock)
    sent = loop._kernel.sendto(sock, data, address)
    if sent < 0:
        sent = await _when_writable(
            loop, sock.fileno(), sent, lambda: loop._kernel.sendto(sock, data, address)
        )
    return sent


async def sock_connect(loop: EventLoop, sock: Any, address: Any) -> None:
    """Connect a socket.

    Source: ``asyncio.loop.sock_connect``.
    """
    _check(loop, sock)
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        infos = await ensure_resolved(loop, address, family=sock.family, kind=sock.type, protocol=sock.proto)
        address = infos[0][4]
    fd = sock.fileno()
    result = loop._kernel.connect(sock, address)
    if result in (-errno.EINPROGRESS, -errno.EINTR):
        result = await _when_writable(loop, fd, -errno.EAGAIN, lambda: loop._kernel.socket_error(sock))
        if result:
            raise OSError(result, f"Connect call failed {address}")
    elif result < 0:
        raise os_error(result)


async def sock_accept(loop: EventLoop, sock: Any) -> tuple[socket.socket, Any]:
    """The next connection of a listening socket, and the peer's address.

    Source: ``asyncio.loop.sock_accept``.
    """
    _check(loop, sock)
    accepted = loop._kernel.accept(sock)
    if isinstance(accepted, int):
        accepted = await _when_readable(loop, sock.fileno(), accepted, lambda: loop._kernel.accept(sock))
    connection, address = accepted
    return connection, address


# Waiting.


async def _when_readable(loop: EventLoop, fd: int, first: int, attempt: Attempt) -> Any:
    """What an attempt gives as soon as it does not block; `first` is what the first one gave."""
    if first not in WOULD_BLOCK:
        raise os_error(first)
    ensure_no_transport(loop, fd)
    waiter = loop.create_future()
    handle = watch_reader(loop, fd, _try, waiter, attempt)
    try:
        return await waiter
    finally:
        if not handle.cancelled():
            unwatch_reader(loop, fd)


async def _when_writable(loop: EventLoop, fd: int, first: int, attempt: Attempt) -> Any:
    """The same for attempts that wait to be writable; 0 means that the first one did something."""
    if first != 0 and first not in WOULD_BLOCK:
        raise os_error(first)
    ensure_no_transport(loop, fd)
    waiter = loop.create_future()
    handle = watch_writer(loop, fd, _try, waiter, attempt)
    try:
        return await waiter
    finally:
        if not handle.cancelled():
            unwatch_writer(loop, fd)


def _try(waiter: asyncio.Future[Any], attempt: Attempt) -> None:
    """The descriptor is ready: try, unless the one who waits has left or has got something."""
    if waiter.done():
        return
    try:
        result = attempt()
        if result is None or (isinstance(result, int) and result in WOULD_BLOCK):
            return
        if isinstance(result, int) and result < 0:
            raise os_error(result)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        waiter.set_exception(error)
    else:
        waiter.set_result(result)


def _check(loop: EventLoop, sock: Any) -> None:
    check_plain_socket(sock)
    if loop._debug and sock.gettimeout() != 0:
        raise ValueError("the socket must be non-blocking")
