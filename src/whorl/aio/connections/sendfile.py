"""Files sent over sockets and transports: by the kernel, or piece by piece where it cannot.

On every Python, a file is sent from the given offset on, wherever its position was. Afterwards, also after an
error, the position is behind the bytes that were sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import socket
import sys
import threading
from asyncio import constants
from typing import TYPE_CHECKING, Any

from whorl.aio.interop import at_import
from whorl.aio.sockets.add_reader import forget_writer, watch_writer
from whorl.aio.sockets.checks import check_plain_socket
from whorl.aio.sockets.sock_methods_overridden import overrides_method
from whorl.aio.sockets.watch import ensure_no_transport
from whorl.core.kernel.errors import os_error
from whorl.core.limits import SENDFILE_READ_SIZE, SENDFILE_SIZE, SENDFILE_WRITE_SIZE

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop

_WOULD_BLOCK = (-errno.EAGAIN, -errno.EINTR)

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
    _check_mode(file)
    if sock.type != socket.SOCK_STREAM:
        raise ValueError("only SOCK_STREAM type sockets are supported")
    _check_numbers(offset, count)


def _check_mode(file: Any) -> None:
    if "b" not in getattr(file, "mode", "b"):
        raise ValueError("file should be opened in binary mode")


def _check_numbers(offset: Any, count: Any) -> None:
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
    loop._held.push_all()
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
    _seek_first(file, offset)
    buffer = memoryview(bytearray(min(count or SENDFILE_READ_SIZE, SENDFILE_READ_SIZE)))
    total = 0
    sent = 0  # of the piece
    try:
        while piece := await _read_piece(loop, file, buffer, count, total):
            while sent < len(piece):
                sent += await _send_some(loop, sock, piece[sent:])
            total += sent
            sent = 0
    finally:
        _seek(file, offset + total + sent)
    return total


async def _send_some(loop: AnyLoop, sock: Any, piece: memoryview) -> int:
    """Send a part of a piece; return the number of bytes. If this is cancelled, nothing was sent."""
    loop._held.push_all()
    if overrides_method(loop, sock, "send"):
        await loop.sock_sendall(sock, piece)
        return len(piece)
    while (sent := loop._kernel.send(sock.fileno(), piece, 0)) < 0:
        if sent not in _WOULD_BLOCK:
            raise os_error(sent)
        await _until_writable(loop, sock, None)
    return sent


async def _read_piece(
    loop: AnyLoop, file: Any, buffer: memoryview, count: int | None, total: int
) -> memoryview:
    """Return the next bytes of the file, none at its end or if `total` of `count` is all."""
    if count:
        buffer = buffer[: max(count - total, 0)]
        if not buffer:
            return buffer
    read = _Read(file, buffer)
    job = asyncio.ensure_future(loop.run_in_executor(None, read), loop=loop)
    try:
        await asyncio.wait([job])
    except asyncio.CancelledError:
        if read.take() or not hasattr(file, "seek"):
            job.cancel()
        else:
            await _until_done(job)  # The thread moves the file's position.
        raise
    return buffer[: job.result() or 0]


class _Read:
    """A read of a file by a thread, unless the loop has taken it back before."""

    def __init__(self, file: Any, buffer: memoryview) -> None:
        self._file = file
        self._buffer = buffer
        self._taken = threading.Lock()

    def take(self) -> bool:
        """Return whether this is the first call: by the thread, or by the loop that wants no read now."""
        return self._taken.acquire(blocking=False)

    def __call__(self) -> int | None:
        size: int | None = self._file.readinto(self._buffer) if self.take() else 0
        return size


async def _until_done(job: asyncio.Future[Any]) -> None:
    """Wait for the end of a job, whatever it is, and however often the task is cancelled."""
    while not job.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([job])
    if not job.cancelled():
        job.exception()  # which nobody else retrieves


def _seek_first(file: Any, offset: int) -> None:
    """Set the file's position; an object without one is refused as this Python's asyncio refuses it."""
    if hasattr(file, "seek") or (offset and sys.version_info < (3, 14)):
        file.seek(offset)


def _seek(file: Any, position: int) -> None:
    """Set the file's position, if it has one."""
    if hasattr(file, "seek"):
        file.seek(position)


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
    _check_mode(file)
    _check_numbers(offset, count)
    _seek_first(file, offset)
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
        _seek(file, offset + total)
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
