"""The data path of asyncio's pipe transports: one direction of a pipe, a socket or a terminal.

A descriptor belongs to one handle of the loop. But a program may give a terminal or a socket to a reading and
a writing transport, and to `add_reader`. A transport that finds its descriptor taken works on a duplicate of
it. To the poller the duplicate is another descriptor; it refers to the same file.
"""

from __future__ import annotations

import asyncio
import errno
import stat
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from whorl.aio.interop.at_import import logger
from whorl.aio.transports import states
from whorl.aio.transports.byte_transport import BaseTransport, WriteTransport
from whorl.core import states as events
from whorl.core.kernel.errors import os_error
from whorl.handles.streams.engine import Stream

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop

#: After this many writes to a closed pipe each further one logs a warning, as in asyncio.
QUIET_WRITES = 5


def attach_pipe(transport: BaseTransport, pipe: Any, complaint: str) -> int:
    """Let a transport work on the descriptor of a file object, and return its file type.

    Raises ValueError with `complaint` for files that never block: regular files, directories.
    """
    try:
        fd = pipe.fileno()
        kernel = transport._kernel
        mode = kernel.file_mode(fd)
        if mode < 0:
            raise os_error(mode)
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)):
            raise ValueError(complaint)
        code = kernel.set_blocking(fd, False)
        if code < 0:
            raise os_error(code)
    except BaseException:
        transport._close_now()
        raise
    transport._attach(pipe, fd, stat.S_ISSOCK(mode), False)
    transport._extra["pipe"] = pipe
    return stat.S_IFMT(mode)


class ReadPipe(BaseTransport):
    """The end of a pipe that is read (asyncio: ``asyncio.ReadTransport``)."""

    def __init__(
        self,
        loop: AnyLoop,
        pipe: Any,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(loop, extra, None)
        self._duplicate = -1
        attach_pipe(self, pipe, "Pipe transport is for pipes/sockets only.")
        self._protocol = protocol
        self._schedule_connection_made(waiter)

    def is_reading(self) -> bool:
        """Return whether the protocol gets data."""
        return self._state == states.OPEN and not self._paused

    def pause_reading(self) -> None:
        """Give the protocol no data until `resume_reading`."""
        self._pause()

    def resume_reading(self) -> None:
        """Give the protocol data again."""
        self._resume()

    def _start_reading(self) -> None:
        try:
            Stream._start_reading(self)
        except PermissionError as error:  # The file never blocks: /dev/null, for example.
            # Programs that get no input go on; on asyncio's loop this call comes out of a callback, too.
            self._reading = False
            self._report(error, f"Exception in callback {type(self).__name__}._add_reader()")

    def _update_interest(self) -> None:
        if self._reading and not self._interest:
            self._duplicate = with_own_descriptor(self, self._duplicate)
        Stream._update_interest(self)

    def _release_fd(self) -> None:
        """Release the descriptor to another handle of the loop."""
        self._duplicate = without_descriptor(self, self._duplicate)
        self._update_interest()

    def _data_arrived(self, data: bytes) -> None:
        # An exception from here is reported, and the transport goes on, as in asyncio.
        self._protocol.data_received(data)

    def _end_arrived(self) -> None:
        loop: Any = self._loop
        if loop._debug:
            logger.info("%r was closed by peer", self)
        loop.call_soon(self._protocol.eof_received, context=self._context)
        self._schedule_connection_lost(None)

    def _read_failed(self, code: int) -> None:
        error = os_error(code)
        message = "Fatal read error on pipe transport"
        if code == errno.EIO:  # A terminal reports with this error that its other side is closed.
            self._fatal_error(error, message)
        else:
            self._report(error, message)
            self._force_close(error)

    def close(self) -> None:  # type: ignore[override]
        """Read no more and close the pipe."""
        self._force_close(None)

    def _release(self) -> None:
        release_pipe(self, self._duplicate)


class WritePipe(WriteTransport):
    """The end of a pipe that is written to (asyncio: ``asyncio.WriteTransport``).

    On pipes and sockets, the transport notices by itself when the reader is gone.
    """

    def __init__(
        self,
        loop: AnyLoop,
        pipe: Any,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(loop, extra, None)
        self._duplicate = -1
        kind = attach_pipe(self, pipe, "Pipe transport is only for pipes, sockets and character devices")
        self._watches_peer = kind != stat.S_IFCHR
        self._protocol = protocol
        self._schedule_connection_made(waiter)

    def _start_reading(self) -> None:
        self._watch()  # A readable event means only that the reader is gone.

    def _update_interest(self) -> None:
        try:
            self._watch()
        except OSError as error:  # by the poller, or there are too many descriptors
            self._fatal_error(error, "Fatal write error on pipe transport")

    def _watch(self) -> None:
        """Let the poller watch for the events that are of use."""
        wanted = 0
        if self._watches_peer and self._started and self._state < states.LOST:
            wanted |= events.DISCONNECT
        if self._unsent:
            wanted |= events.WRITABLE
        if wanted and not self._interest:
            self._duplicate = with_own_descriptor(self, self._duplicate)
        if wanted != self._interest:
            self._poller.modify(self, wanted)

    def _release_fd(self) -> None:
        """Release the descriptor to another handle of the loop."""
        self._duplicate = without_descriptor(self, self._duplicate)
        self._update_interest()

    def _handle_events(self, seen: int) -> None:
        if self._watches_peer and seen & (events.READABLE | events.ENDS):
            self._reader_left()
        else:
            Stream._on_events(self, seen)

    def _reader_left(self) -> None:
        """Handle the end of the reader: the other side reads no more."""
        if self._loop._debug:
            logger.info("%r was closed by peer", self)
        self._force_close(BrokenPipeError() if self._unsent else None)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write `data`: at once as far as the kernel takes it, the rest when it can."""
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise AssertionError(repr(data))  # as asyncio does
        WriteTransport.write(self, data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write all of `list_of_data`, joined; data that cannot be joined raises TypeError, as asyncio's."""
        self.write(b"".join(list_of_data))

    def _count_lost_write(self) -> bool:
        """Return whether a write is lost, as nothing can be sent any more; count it, and warn of many."""
        if self._state == states.OPEN:
            return False
        if self._lost_writes >= QUIET_WRITES:
            logger.warning("pipe closed by peer or os.write(pipe, data) raised exception.")
        else:
            self._lost_writes += 1
        return True

    def _write_failed(self, code: int) -> None:
        self._lost_writes += 1
        self._fatal_error(os_error(code), "Fatal write error on pipe transport")

    def _sent_some(self) -> None:
        if not self._unsent:  # The low watermark counts for sockets only, as in asyncio.
            WriteTransport._sent_some(self)

    def _sent_all(self) -> None:
        if self._state == states.CLOSING:
            self._schedule_connection_lost(None)

    def write_eof(self) -> None:
        """Close the pipe once all is written, so that its reader reads to the end."""
        if self._state == states.OPEN:
            self._state = states.CLOSING
            if not self._unsent:
                self._schedule_connection_lost(None)

    def can_write_eof(self) -> bool:
        """Return True: closing a pipe signals the end to its reader."""
        return True

    def close(self) -> None:  # type: ignore[override]
        """Close the pipe once all is written."""
        self.write_eof()

    def _release(self) -> None:
        release_pipe(self, self._duplicate)


def with_own_descriptor(transport: BaseTransport, duplicate: int) -> int:
    """Let a transport that is about to be watched work on a descriptor that no other handle watches.

    Takes and returns the duplicate that the transport owns, or -1 if it owns none.
    """
    other = transport._poller.find(transport._fd)
    if other is None or other is transport:
        return duplicate
    return without_descriptor(transport, duplicate)


def without_descriptor(transport: BaseTransport, duplicate: int) -> int:
    """Let a transport work on a new duplicate of its descriptor, which it owns; return the duplicate."""
    new = transport._kernel.duplicate(transport._fd)
    if new < 0:
        raise os_error(new)
    transport._poller.remove(transport)
    if duplicate >= 0:
        transport._kernel.close(duplicate)
    transport._fd = new
    return new


def release_pipe(transport: BaseTransport, duplicate: int) -> None:
    """Leave the poller and close the pipe."""
    transport._drop_unsent()
    transport._poller.remove(transport)
    transport._fd = -1
    if duplicate >= 0:
        transport._kernel.close(duplicate)
    if transport._sock is not None:
        transport._kernel.close_file(transport._sock)
