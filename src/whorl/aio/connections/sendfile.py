"""Files sent over sockets and transports: by the kernel, or piece by piece where it cannot."""

from __future__ import annotations

import asyncio
import errno
import io
import socket
import sys
from asyncio import constants
from typing import TYPE_CHECKING, Any

from whorl.aio.interop import at_import
from whorl.aio.sockets.add_reader import forget_writer, watch_writer
from whorl.aio.sockets.checks import check_plain_socket
from whorl.aio.sockets.watch import ensure_no_transport
from whorl.core.kernel.errors import os_error
from whorl.core.limits import SENDFILE_READ_SIZE, SENDFILE_SIZE, SENDFILE_WRITE_SIZE

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop

_WOULD_BLOCK = (-errno.EAGAIN, -errno.EINTR)

# Since 3.14, the file's position is set even if nothing was sent. With offset 0, it is also set before the
# file is read piece by piece; older Pythons start at the current position.
_ALWAYS_SEEKS = sys.version_info >= (3, 14)

# Over sockets.


async def sock_sendfile(
    loop: AnyLoop, sock: Any, file: Any, offset: int = 0, count: int | None = None, *, fallback: bool = True
) -> int:
    """Send `count` bytes of a file from `offset` on, None: all; return the number of bytes sent.

    The file's position is behind them afterwards, also after an error. Without `fallback`, raises
    SendfileNotAvailableError if the kernel cannot send this file. Source: ``asyncio.loop.sock_sendfile``.
    """
    if loop._debug and sock.gettimeout() != 0:
        raise ValueError("the socket must be non-blocking")
    check_plain_socket(sock)
    loop._check_sendfile_params(sock, file, offset, count)
    try:
        return await loop._sock_sendfile_native(sock, file, offset, count)
    except asyncio.SendfileNotAvailableError:
        if not fallback:
            raise
    return await loop._sock_sendfile_fallback(sock, file, offset, count)


def check_sendfile_params(loop: AnyLoop, sock: Any, file: Any, offset: Any, count: Any) -> None:
    """Refuse text files, sockets without a stream, and invalid numbers of bytes."""
    if "b" not in getattr(file, "mode", "b"):
        raise ValueError("file should be opened in binary mode")
    if sock.type != socket.SOCK_STREAM:
        raise ValueError("only SOCK_STREAM type sockets are supported")
    if count is not None:
        if not isinstance(count, int):
            raise TypeError(f"count must be a positive integer (got {count!r})")
        if count <= 0:
            raise ValueError(f"count must be a positive integer (got {count!r})")
    if not isinstance(offset, int):
        raise TypeError(f"offset must be a non-negative integer (got {offset!r})")
    if offset < 0:
        raise ValueError(f"offset must be a non-negative integer (got {offset!r})")


async def sock_sendfile_native(
    loop: AnyLoop, sock: Any, file: Any, offset: int, count: int | None, transport: Any = None
) -> int:
    """Let the kernel send the file; `transport` owns the socket, if there is one."""
    try:
        source = file.fileno()
    except (AttributeError, io.UnsupportedOperation) as error:
        raise asyncio.SendfileNotAvailableError("not a regular file") from error
    size = loop._kernel.file_size(source)
    if size < 0:
        raise asyncio.SendfileNotAvailableError("not a regular file") from os_error(size)
    if not (count or size):
        return 0
    total = 0
    try:
        while count is None or total < count:
            wanted = size if count is None else count - total
            sent = loop._kernel.sendfile(sock.fileno(), source, offset + total, min(wanted, SENDFILE_SIZE))
            if sent == 0:
                break
            if sent > 0:
                total += sent
            elif sent not in _WOULD_BLOCK:
                raise _refused(sent, total)
            if total != count:
                await _until_writable(loop, sock, transport)
    finally:
        if total or _ALWAYS_SEEKS:
            placed = loop._kernel.set_file_position(source, offset + total)
            if placed < 0:
                raise os_error(placed)
    return total


def _refused(code: int, total: int) -> Exception:
    """Return the exception for an error after so many bytes; after none, the file may be sent otherwise."""
    error = os_error(code)
    refusal: Exception = error
    if not total:
        refusal = asyncio.SendfileNotAvailableError("os.sendfile call failed")
    elif error.errno == errno.ENOTCONN:
        refusal = ConnectionError("socket is not connected", errno.ENOTCONN)
    if refusal is not error:
        refusal.__cause__ = error
    return refusal


async def _until_writable(loop: AnyLoop, sock: Any, transport: Any) -> None:
    """Wait until the socket takes more; ConnectionError if its transport loses the connection meanwhile."""
    fd = sock.fileno()
    ensure_no_transport(loop, fd)
    waiter = loop.create_future()
    if transport is not None:
        transport._set_empty_waiter(waiter)
    writer = watch_writer(loop, fd, _wake, waiter)
    try:
        await waiter
    finally:
        forget_writer(loop, fd, writer)
    if transport is not None:
        _check_open(transport)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def sock_sendfile_fallback(loop: AnyLoop, sock: Any, file: Any, offset: int, count: int | None) -> int:
    """Read the file in another thread and send its data."""
    if hasattr(file, "seek") if _ALWAYS_SEEKS else offset:
        file.seek(offset)
    buffer = memoryview(bytearray(min(count or SENDFILE_READ_SIZE, SENDFILE_READ_SIZE)))
    total = 0
    try:
        while piece := await _read_piece(loop, file, buffer, count, total):
            await loop.sock_sendall(sock, piece)
            total += len(piece)
    finally:
        _seek_past(file, offset, total)
    return total


async def _read_piece(
    loop: AnyLoop, file: Any, buffer: memoryview, count: int | None, total: int
) -> memoryview:
    """Return the next bytes of the file, none at its end or if `total` of `count` is all."""
    if count:
        buffer = buffer[: max(count - total, 0)]
        if not buffer:
            return buffer
    size = await loop.run_in_executor(None, file.readinto, buffer)
    return buffer[: size or 0]


def _seek_past(file: Any, offset: int, total: int) -> None:
    """Set the file's position behind the bytes that were sent."""
    if total and hasattr(file, "seek"):
        file.seek(offset + total)


# Over transports.


async def sendfile(
    loop: AnyLoop,
    transport: Any,
    file: Any,
    offset: int = 0,
    count: int | None = None,
    *,
    fallback: bool = True,
) -> int:
    """Send `count` bytes of a file from `offset` on, None: all; return the number of bytes sent.

    Reading pauses and writing is refused meanwhile. Without `fallback`, raises SendfileNotAvailableError if
    the kernel cannot send this file. Raises RuntimeError if it can send none over this transport. Source:
    ``asyncio.loop.sendfile``.
    """
    if transport.is_closing():
        raise RuntimeError("Transport is closing")
    mode = getattr(transport, "_sendfile_compatible", constants._SendfileMode.UNSUPPORTED)
    if mode is constants._SendfileMode.UNSUPPORTED:
        raise RuntimeError(f"sendfile is not supported for transport {transport!r}")
    if mode is constants._SendfileMode.TRY_NATIVE:
        try:
            return await loop._sendfile_native(transport, file, offset, count)
        except asyncio.SendfileNotAvailableError:
            if not fallback:
                raise
    if not fallback:
        raise RuntimeError(
            f"fallback is disabled and native sendfile is not supported for transport {transport!r}"
        )
    return await loop._sendfile_fallback(transport, file, offset, count)


async def sendfile_native(loop: AnyLoop, transport: Any, file: Any, offset: int, count: int | None) -> int:
    """Send by the kernel, once the transport has sent its data; the transport leaves the poller meanwhile."""
    waiter = transport._make_empty_waiter()
    reads = transport.is_reading()
    transport.pause_reading()
    try:
        await waiter
        _check_open(transport)
        loop._poller.remove(transport)
        loop._transports.discard(transport.fileno(), transport)
        sock = transport._socket()
        loop._check_sendfile_params(sock, file, offset, count)
        return await sock_sendfile_native(loop, sock, file, offset, count, transport)
    finally:
        transport._reset_empty_waiter()
        if transport.fileno() >= 0:
            loop._transports.add(transport.fileno(), transport)
        if reads:
            transport.resume_reading()


def _check_open(transport: Any) -> None:
    if transport.is_closing():
        raise ConnectionError("Connection is closed by peer")


async def sendfile_fallback(loop: AnyLoop, transport: Any, file: Any, offset: int, count: int | None) -> int:
    """Read the file in another thread and write its data, as fast as the peer takes it."""
    if hasattr(file, "seek") if _ALWAYS_SEEKS else offset:
        file.seek(offset)
    buffer = memoryview(bytearray(min(count or SENDFILE_WRITE_SIZE, SENDFILE_WRITE_SIZE)))
    total = 0
    proto = _SendfileProtocol(loop, transport)
    try:
        while piece := await _read_piece(loop, file, buffer, count, total):
            await proto.drain()
            transport.write(bytes(piece))
            total += len(piece)
            await proto.drain()
    finally:
        proto.restore()
        _seek_past(file, offset, total)
    return total


class _SendfileProtocol(at_import.Protocol):
    """The protocol of a transport while a file is written to it."""

    def __init__(self, loop: AnyLoop, transport: Any) -> None:
        if not hasattr(transport, "_protocol_paused"):
            raise TypeError("transport should be _FlowControlMixin instance")
        self._transport = transport
        self._protocol = transport.get_protocol()
        self._should_resume_reading = transport.is_reading()
        self._was_paused = transport._protocol_paused
        self._lost = False
        self._loop = loop
        self._write_ready_fut: asyncio.Future[None] | None = (
            loop.create_future() if self._was_paused else None
        )
        transport.pause_reading()
        transport.set_protocol(self)

    async def drain(self) -> None:
        """Wait until the transport takes more; ConnectionError if it will not."""
        if self._transport.is_closing():
            raise ConnectionError("Connection closed by peer")
        if self._write_ready_fut is not None:
            await self._write_ready_fut

    def restore(self) -> None:
        """Give the transport back to its protocol."""
        self._transport.set_protocol(self._protocol)
        if self._should_resume_reading:
            self._transport.resume_reading()
        if self._lost:
            return
        # Make up for the missed call: the protocol's last call must match the transport's state.
        is_paused = self._transport._protocol_paused
        if self._was_paused and not is_paused:
            self._protocol.resume_writing()
        elif is_paused and not self._was_paused:
            self._protocol.pause_writing()

    def connection_made(self, transport: Any) -> None:
        raise RuntimeError("Invalid state: connection should have been established already.")

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        waiter = self._write_ready_fut
        if waiter is not None and not waiter.done():
            waiter.set_exception(ConnectionError("Connection is closed by peer") if error is None else error)
        self._protocol.connection_lost(error)

    def pause_writing(self) -> None:
        if self._write_ready_fut is None:
            self._write_ready_fut = self._loop.create_future()

    def resume_writing(self) -> None:
        waiter, self._write_ready_fut = self._write_ready_fut, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def data_received(self, data: bytes) -> None:
        raise RuntimeError("Invalid state: reading should be paused")

    def eof_received(self) -> bool:
        raise RuntimeError("Invalid state: reading should be paused")
