"""The `sock_` methods: sockets of the user's, without transports.

Each tries at once, and waits for the poller only if the call would have blocked.
"""

from __future__ import annotations

import errno
import socket
import types
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from whorl.aio.sockets.checks import check_plain_socket
from whorl.aio.sockets.connect_plain import connect_socket
from whorl.aio.sockets.sock_methods_overridden import (
    overridden_accept,
    overridden_connect,
    overridden_recv,
    overridden_sendall,
    overridden_sendto,
    overrides_method,
)
from whorl.aio.sockets.watch import SocketWait, receive, receive_usually, send_usually, watch_for
from whorl.core.kernel.errors import os_error

if TYPE_CHECKING:
    from typing import TypeAlias

    from _typeshed import ReadableBuffer, WriteableBuffer

    from whorl.aio.loop_type import AnyLoop
    from whorl.aio.sockets.connect_attempt import ConnectAttempt

    # An attempt returns the result, the negative error number, or None to be tried again.
    Attempt: TypeAlias = Callable[[], Any]

WOULD_BLOCK = (-errno.EAGAIN, -errno.EINTR)


async def sock_recv(loop: AnyLoop, sock: Any, n: int) -> bytes:
    """Receive at most `n` bytes from a stream socket; return no bytes at its end.

    Source: ``asyncio.loop.sock_recv``.
    """
    answer = receive_usually(loop, sock, n)
    if answer is None:
        _check(loop, sock)
        if overrides_method(loop, sock, "recv"):
            return await overridden_recv(loop, sock, "recv", n)  # type: ignore[no-any-return]
        try:
            answer = receive(loop, sock, n)
        except (TypeError, OverflowError):  # The socket raises the error in Python's words.
            return await overridden_recv(loop, sock, "recv", n)  # type: ignore[no-any-return]
    if type(answer) is bytes:
        return answer
    wait: Any = answer
    try:  # This does what `_outcome` does, without a coroutine for it.
        await wait
    except BaseException:
        wait.withdraw()
        raise
    data: bytes = wait.take()
    return data


async def sock_recv_into(loop: AnyLoop, sock: Any, buf: WriteableBuffer) -> int:
    """Receive into a buffer; return the number of bytes. Source: ``asyncio.loop.sock_recv_into``."""
    _check(loop, sock)
    if overrides_method(loop, sock, "recv_into"):
        return await overridden_recv(loop, sock, "recv_into", buf)  # type: ignore[no-any-return]
    fd = sock.fileno()
    try:
        size = loop._kernel.recv_into(fd, buf)
    except (TypeError, BufferError):
        return await overridden_recv(loop, sock, "recv_into", buf)  # type: ignore[no-any-return]
    if size < 0 and memoryview(buf).nbytes:
        size = await _when_readable(loop, sock, size, lambda: loop._kernel.recv_into(fd, buf))
    return max(size, 0)


async def sock_sendall(loop: AnyLoop, sock: Any, data: ReadableBuffer) -> None:
    """Send all of `data`.

    Source: ``asyncio.loop.sock_sendall``.
    """
    taken = send_usually(loop, sock, data)
    if taken is not None:
        if taken is not True:
            await _send_rest(loop, sock, data, taken)  # type: ignore[arg-type]
        return
    _check(loop, sock)
    loop._held.push_all()
    if overrides_method(loop, sock, "send"):
        return await overridden_sendall(loop, sock, data)
    try:
        whole = memoryview(data)
    except TypeError:
        return await overridden_sendall(loop, sock, data)
    fd = sock.fileno()
    with whole:
        if not whole.c_contiguous:
            raise BufferError("memoryview: underlying buffer is not C-contiguous")
        with whole.cast("B") as rest:
            sent = loop._kernel.send(fd, rest, 0)
            if sent != rest.nbytes:
                await _send_rest(loop, sock, rest, sent)


async def _send_rest(loop: AnyLoop, sock: Any, data: bytes | memoryview, sent: int) -> None:
    done = max(sent, 0)
    fd = sock.fileno()

    def send_more() -> int | None:
        nonlocal done
        loop._held.push_all()
        result = loop._kernel.send(fd, data, done)
        if result < 0:
            return result
        done += result
        return 0 if done == len(data) else None

    await _when_writable(loop, sock, min(sent, 0), send_more)


async def sock_recvfrom(loop: AnyLoop, sock: Any, bufsize: int) -> tuple[bytes, Any]:
    """Receive a datagram, cut to `bufsize` bytes, and the address of its sender.

    Source: ``asyncio.loop.sock_recvfrom``.
    """
    _check(loop, sock)
    if overrides_method(loop, sock, "recvfrom"):
        return await overridden_recv(loop, sock, "recvfrom", bufsize)  # type: ignore[no-any-return]
    received = loop._kernel.recvfrom(sock, bufsize)
    if isinstance(received, int):
        received = await _when_readable(loop, sock, received, lambda: loop._kernel.recvfrom(sock, bufsize))
    return received


async def sock_recvfrom_into(
    loop: AnyLoop, sock: Any, buf: WriteableBuffer, nbytes: int = 0
) -> tuple[int, Any]:
    """Receive a datagram into a buffer; return the number of bytes and the address of its sender.

    It receives at most `nbytes`. Raises ValueError if the buffer is smaller. Source:
    ``asyncio.loop.sock_recvfrom_into``.
    """
    _check(loop, sock)
    size = nbytes or len(buf)  # type: ignore[arg-type]
    if overrides_method(loop, sock, "recvfrom_into"):
        answer: tuple[int, Any] = await overridden_recv(loop, sock, "recvfrom_into", buf, size)
        return answer
    received = loop._kernel.recvfrom_into(sock, buf, size)
    if isinstance(received, int):
        received = await _when_readable(
            loop, sock, received, lambda: loop._kernel.recvfrom_into(sock, buf, size)
        )
    return received


async def sock_sendto(loop: AnyLoop, sock: Any, data: ReadableBuffer, address: Any) -> int:
    """Send a datagram to an address; return the number of bytes. Source: ``asyncio.loop.sock_sendto``."""
    _check(loop, sock)
    loop._held.push_all()
    if overrides_method(loop, sock, "sendto"):
        return await overridden_sendto(loop, sock, data, address)  # type: ignore[no-any-return]
    sent = loop._kernel.sendto(sock, data, address)
    if sent < 0:
        sent = await _when_writable(loop, sock, sent, lambda: loop._kernel.sendto(sock, data, address))
    return sent


async def sock_connect(loop: AnyLoop, sock: Any, address: Any) -> None:
    """Connect a socket.

    Source: ``asyncio.loop.sock_connect``.
    """
    attempt = connect_socket(loop, sock, address)
    if attempt is not None:
        await connected(attempt, address)
        return
    _check(loop, sock)
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        infos = await loop._ensure_resolved(
            address, family=sock.family, type=sock.type, proto=sock.proto, loop=loop
        )
        address = infos[0][4]
    loop._held.push_all()
    if overrides_method(loop, sock, "connect"):
        return await overridden_connect(loop, sock, address)
    result = loop._kernel.connect(sock, address)
    if result in (-errno.EINPROGRESS, -errno.EINTR):
        result = await _when_writable(loop, sock, -errno.EAGAIN, partial(loop._kernel.socket_error, sock))
        await _turn()  # asyncio takes one turn between the event and the task.
        if result:
            raise OSError(result, f"Connect call failed {address}")
    elif result < 0:
        raise os_error(result)


async def connected(attempt: ConnectAttempt, address: Any) -> ConnectAttempt:
    """Return the attempt once it has succeeded."""
    try:
        await attempt
        attempt.check(address)
    except BaseException:
        attempt.give_up()
        raise
    return attempt


async def sock_accept(loop: AnyLoop, sock: Any) -> tuple[socket.socket, Any]:
    """Return the next connection of a listening socket, and the peer's address.

    Source: ``asyncio.loop.sock_accept``.
    """
    _check(loop, sock)
    if overrides_method(loop, sock, "accept"):
        return await overridden_accept(loop, sock)
    accepted = loop._kernel.accept(sock)
    if isinstance(accepted, int):
        accepted = await _when_readable(loop, sock, accepted, partial(loop._kernel.accept, sock))
    connection, address = accepted
    return connection, address


# Waiting.


async def _when_readable(loop: AnyLoop, sock: Any, first: int, attempt: Attempt) -> Any:
    """Return the result of an attempt as soon as it does not block; `first` is the first attempt's result."""
    if first not in WOULD_BLOCK:
        raise os_error(first)
    watch = watch_for(loop, sock)
    wait = SocketWait(loop, watch, attempt, -1)
    watch.set_receiver(wait)
    if first == -errno.EINTR:
        watch.attempt_soon()
    return await _outcome(wait)


async def _when_writable(loop: AnyLoop, sock: Any, first: int, attempt: Attempt) -> Any:
    """Do the same for attempts that wait to be writable; 0 means that the first attempt did a part."""
    if first != 0 and first not in WOULD_BLOCK:
        raise os_error(first)
    watch = watch_for(loop, sock)
    wait = SocketWait(loop, watch, attempt, -1)
    watch.set_sender(wait)
    if first == -errno.EINTR:
        watch.attempt_soon()
    return await _outcome(wait)


@types.coroutine
def _turn() -> Generator[None, None, None]:
    """Go on in the next turn. Tests put their own functions in the place of `asyncio.sleep`."""
    yield


async def _outcome(wait: SocketWait) -> Any:
    """Return the attempt's result; leave the descriptor if the task is cancelled."""
    try:
        await wait
    except BaseException:
        wait.withdraw()
        raise
    return wait.take()


def _check(loop: AnyLoop, sock: Any) -> None:
    check_plain_socket(sock)
    if loop._debug and sock.gettimeout() != 0:
        raise ValueError("the socket must be non-blocking")
