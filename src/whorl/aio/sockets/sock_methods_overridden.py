"""The `sock_` methods for sockets with overridden methods, which are called as asyncio calls them.

Such a socket is an instance of a subclass of Python's socket class, or an object that stands in for a socket.
It is also any socket of Python's class while a method of that class is replaced.

Such a socket may report that it would block whenever it likes. So its descriptor is watched level-triggered,
and a method is called again for as long as the descriptor is ready.
"""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, Any

from whorl.aio.sockets.watch import SocketWait, watch_for
from whorl.core.kernel import socket_overrides
from whorl.core.kernel.kernel import Kernel

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from _typeshed import ReadableBuffer

    from whorl.aio.loop_type import AnyLoop

    # An attempt returns a tuple with the result, None to be called again at once, or -EAGAIN to be called
    # later.
    Attempt: TypeAlias = Callable[[], Any]

BLOCKED = (BlockingIOError, InterruptedError)


def overrides_method(loop: AnyLoop, sock: Any, name: str) -> bool:
    """Return whether a socket's method of this name differs from the one of Python's socket class.

    In a simulated world, sockets always belong to that world.
    """
    return type(loop._kernel) is Kernel and socket_overrides.overrides_method(sock, name)


async def overridden_recv(loop: AnyLoop, sock: Any, name: str, *arguments: Any) -> Any:
    """Return the result of a receiving method, once it does not block."""
    try:
        return getattr(sock, name)(*arguments)
    except BLOCKED:
        return await _when_readable(loop, sock, lambda: getattr(sock, name)(*arguments))


async def overridden_sendall(loop: AnyLoop, sock: Any, data: ReadableBuffer) -> None:
    """Send all of `data` by the socket's `send`."""
    try:
        sent = sock.send(data)
    except BLOCKED:
        sent = 0
    if sent == len(data):  # type: ignore[arg-type]
        return
    whole = memoryview(data)

    def send_more() -> tuple[None] | None:
        nonlocal sent
        sent += sock.send(whole[sent:])
        return (None,) if sent == len(whole) else None

    await _when_writable(loop, sock, send_more)


async def overridden_sendto(loop: AnyLoop, sock: Any, data: ReadableBuffer, address: Any) -> Any:
    """Send a datagram by the socket's `sendto`; return its result."""
    try:
        return sock.sendto(data, address)
    except BLOCKED:
        return await _when_writable(loop, sock, lambda: (sock.sendto(data, 0, address),))


async def overridden_connect(loop: AnyLoop, sock: Any, address: Any) -> None:
    """Connect by the socket's `connect`."""
    sock.fileno()
    try:
        sock.connect(address)
    except BLOCKED:
        await _when_writable(loop, sock, lambda: _check_connected(sock, address))


def _check_connected(sock: Any, address: Any) -> tuple[None]:
    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code != 0:
        raise OSError(code, f"Connect call failed {address}")
    return (None,)


async def overridden_accept(loop: AnyLoop, sock: Any) -> tuple[Any, Any]:
    """Return the next connection that the socket's `accept` gives."""

    def accept_one() -> tuple[Any, Any]:
        connection, address = sock.accept()
        connection.setblocking(False)
        return connection, address

    sock.fileno()
    try:
        return accept_one()
    except BLOCKED:
        accepted: tuple[Any, Any] = await _when_readable(loop, sock, accept_one)
        return accepted


async def _when_readable(loop: AnyLoop, sock: Any, attempt: Callable[[], Any]) -> Any:
    watch = watch_for(loop, sock.fileno())  # the number: the behaviour of such an object is unknown
    wait = SocketWait(loop, watch, _unless_blocked(lambda: (attempt(),)), -1)
    watch.set_receiver(wait)
    return await _outcome(wait)


async def _when_writable(loop: AnyLoop, sock: Any, attempt: Attempt) -> Any:
    watch = watch_for(loop, sock.fileno())
    wait = SocketWait(loop, watch, _unless_blocked(attempt), -1)
    watch.set_sender(wait)
    return await _outcome(wait)


def _unless_blocked(attempt: Attempt) -> Attempt:
    def made() -> Any:
        try:
            return attempt()
        except BLOCKED:
            return -errno.EAGAIN

    return made


async def _outcome(wait: SocketWait) -> Any:
    try:
        await wait
    except BaseException:
        wait.withdraw()
        raise
    (result,) = wait.take()
    return result
