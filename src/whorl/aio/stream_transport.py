"""The data path of asyncio's stream transports: sockets, between the stream engine and a protocol.

    OPEN --close()--> CLOSING --all sent--> LOST --connection_lost()--> CLOSED
      \\------------------abort(), an error--------^

In CLOSING nothing is read any more and what is unsent still goes out. In LOST nothing is sent
either and `connection_lost` stands in the ready queue. Reading and half-closing are flags beside
that: a transport is read while it is OPEN, not paused, and the peer has not finished writing.
"""

from __future__ import annotations

import asyncio
import socket
from asyncio.log import logger
from asyncio.trsock import TransportSocket
from collections.abc import Iterable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

from whorl.aio.flow import limits
from whorl.aio.transport_states import TransportState
from whorl.core.handle import Handle, os_error
from whorl.core.limits import READ_SIZE
from whorl.core.states import Life
from whorl.handles.stream import Stream

try:
    import cython
except ImportError:
    from whorl.core import uncompiled as cython

if TYPE_CHECKING:
    from whorl.aio.loop import EventLoop

LIFE_OPEN = int(Life.OPEN)
OPEN = int(TransportState.OPEN)
CLOSING = int(TransportState.CLOSING)
LOST = int(TransportState.LOST)
CLOSED = int(TransportState.CLOSED)

#: After this many writes to a lost connection each further one logs a warning, as in asyncio.
QUIET_WRITES = 4

if not cython.compiled:

    def events_in_context(transport: Any, seen: int) -> Any:
        """Handle events in the transport's context."""
        transport._context.run(Stream._on_events, transport, seen)


def flat(data: bytes | bytearray | memoryview) -> bytes | bytearray | memoryview:
    """The same bytes as an object whose length is their number; TypeError for other types."""
    if type(data) is bytearray:
        return data
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
    view = data if isinstance(data, memoryview) else memoryview(data)
    if view.itemsize == 1 and view.ndim == 1 and view.c_contiguous:
        return view
    return view.tobytes()


class StreamTransport(Stream):
    """A connected stream socket (asyncio: ``asyncio.Transport``).

    Made by the loop's methods, not by users. `context` is where the protocol's callbacks run; a
    copy of the caller's by default.
    """

    __slots__ = (
        "_buffered",
        "_context",
        "_empty_waiter",
        "_eof_written",
        "_extra",
        "_high",
        "_lost_writes",
        "_low",
        "_paused",
        "_protocol",
        "_protocol_paused",
        "_read_ended",
        "_server",
        "_started",
        "_state",
        "_write_shut",
    )

    def __init__(
        self,
        loop: EventLoop,
        sock: Any,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None = None,
        *,
        extra: dict[str, Any] | None = None,
        server: Any = None,
        context: Context | None = None,
    ) -> None:
        super().__init__(loop)
        loop._hide(self)
        self._activate()
        self._extra = dict(extra) if extra else {}
        self._protocol: Any = None
        self._server = server
        self._empty_waiter: asyncio.Future[None] | None = None
        self._context = copy_context() if context is None else context
        self._state = OPEN
        self._buffered = False  # whether the protocol brings its own buffers
        self._started = False  # whether connection_made was called
        self._paused = False  # whether the user paused reading
        self._read_ended = False  # whether the peer has written its last byte
        self._eof_written = False  # whether the user has written the last byte
        self._write_shut = False  # whether that has gone out, and the peer was told
        self._protocol_paused = False
        self._high, self._low = limits(None, None)
        self._lost_writes = 0
        self._attach(sock, sock.fileno(), True, sock.family != socket.AF_UNIX)
        loop._transports[self._fd] = self
        self._fill_extra(sock)
        self.set_protocol(protocol)
        if sock.family != socket.AF_UNIX:
            self._kernel.set_option(sock, socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if server is not None:
            server._attach(self)
        loop.call_soon(protocol.connection_made, self, context=self._context)
        loop.call_soon(self._begin, waiter, context=self._context)

    def _fill_extra(self, sock: Any) -> None:
        extra = self._extra
        extra["socket"] = TransportSocket(sock)
        name = self._kernel.socket_name(sock)
        extra["sockname"] = None if isinstance(name, int) else name
        if "peername" not in extra:
            peer = self._kernel.peer_name(sock)
            extra["peername"] = None if isinstance(peer, int) else peer

    def _begin(self, waiter: asyncio.Future[None] | None) -> None:
        """Start to read, once the protocol knows its transport."""
        self._started = True
        if self._state == OPEN and not self._paused:
            self._start_reading()
        if waiter is not None and not waiter.cancelled():
            waiter.set_result(None)

    # Looking.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is known of the connection: socket, sockname, peername and others."""
        return self._extra.get(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol | None:
        """The protocol that is called."""
        protocol: asyncio.BaseProtocol | None = self._protocol
        return protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Call another protocol from now on."""
        self._protocol = protocol
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def is_closing(self) -> bool:
        """Whether the transport is closed or being closed."""
        return self._state != OPEN

    def is_reading(self) -> bool:
        """Whether the protocol gets data."""
        return self._state == OPEN and not self._paused

    def get_write_buffer_size(self) -> int:
        """How many bytes wait to be sent."""
        return self._unsent

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """The low and the high watermark, in bytes."""
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the watermarks, in bytes; ValueError unless high >= low >= 0."""
        self._high, self._low = limits(high, low)
        self._check_high_water()

    # Reading.

    def pause_reading(self) -> None:
        """Give the protocol no data until `resume_reading`."""
        if self._state == OPEN and not self._paused:
            self._paused = True
            self._stop_reading()
            if self._loop._debug:
                logger.debug("%r pauses reading", self)

    def resume_reading(self) -> None:
        """Give the protocol data again."""
        if self._state == OPEN and self._paused:
            self._paused = False
            if self._started and not self._read_ended:
                self._start_reading()
            if self._loop._debug:
                logger.debug("%r resumes reading", self)

    def _run(self) -> None:
        # Events go straight to the engine: `_on_events` would be looked up on the Python subclass.
        seen = self._seen
        self._seen = 0
        self._queued = False
        if self._life == LIFE_OPEN:
            events_in_context(self, seen)

    def _read(self) -> None:
        if self._buffered:
            self._read_into_buffer()
        else:
            self._took(self._kernel.recv(self._fd, READ_SIZE), READ_SIZE)

    def _read_into_buffer(self) -> None:
        """Let the kernel write into the protocol's own buffer."""
        protocol = self._protocol  # It may replace itself meanwhile, but the buffer is its own.
        try:
            buffer = protocol.get_buffer(-1)
            size = len(buffer)
            if not size:
                raise RuntimeError("get_buffer() returned an empty buffer")
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._fatal_error(error, "Fatal error: protocol.get_buffer() call failed.")
            return
        try:
            result = self._kernel.recv_into(self._fd, buffer)
        except (TypeError, ValueError, BufferError) as error:
            self._fatal_error(error, "Fatal read error on socket transport")
            return
        self._note_read(result, size)
        if result > 0:
            try:
                protocol.buffer_updated(result)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self._fatal_error(error, "Fatal error: protocol.buffer_updated() call failed.")

    def _data_arrived(self, data: bytes) -> None:
        try:
            self._protocol.data_received(data)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._fatal_error(error, "Fatal error: protocol.data_received() call failed.")

    def _end_arrived(self) -> None:
        self._read_ended = True
        if self._loop._debug:
            logger.debug("%r received EOF", self)
        try:
            keep_open = self._protocol.eof_received()
        except (SystemExit, KeyboardInterrupt):
            self.close()
            raise
        except BaseException as error:
            self._fatal_error(error, "Fatal error: protocol.eof_received() call failed.")
            return
        if not keep_open:
            self.close()

    def _read_failed(self, code: int) -> None:
        self._fatal_error(os_error(code), "Fatal read error on socket transport")

    # Writing.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send `data`: at once as far as the kernel takes it, the rest when it can."""
        if type(data) is not bytes:
            data = flat(data)
        self._check_writable("write")
        size = len(data)
        if not size or self._is_lost():
            return
        code = self._send(data, size)
        if code < 0:
            self._fatal_error(os_error(code), "Fatal write error on socket transport")
        elif self._unsent > self._high:
            self._check_high_water()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send all of `list_of_data` in order, in as few calls of the kernel's as possible."""
        self._check_writable("writelines")
        chunks = [data if type(data) is bytes else bytes(memoryview(data)) for data in list_of_data]
        if not any(chunks) or self._is_lost():
            return
        was_empty = not self._unsent
        for chunk in chunks:
            if chunk:
                self._enqueue(chunk, 0, len(chunk))
        if was_empty:
            self._flush()
            if self._unsent:
                self._update_interest()
        self._check_high_water()

    def write_eof(self) -> None:
        """Shut the writing side once all is sent; the peer reads to its end."""
        if self._state != OPEN or self._eof_written:
            return
        self._eof_written = True
        if not self._unsent:
            self._shut_write_side()

    def can_write_eof(self) -> bool:
        """True: stream sockets can be closed one side at a time."""
        return True

    def _check_writable(self, method: str) -> None:
        if self._eof_written:
            raise RuntimeError(f"Cannot call {method}() after write_eof()")
        if self._empty_waiter is not None:
            raise RuntimeError(f"unable to {method}; sendfile is in progress")

    def _is_lost(self) -> bool:
        """Whether nothing can be sent any more; warns those who keep trying."""
        if self._state < LOST:
            return False
        if self._lost_writes >= QUIET_WRITES:
            logger.warning("socket.send() raised exception.")
        self._lost_writes += 1
        return True

    def _shut_write_side(self) -> None:
        if self._write_shut:
            return
        self._write_shut = True
        code = self._kernel.shutdown(self._sock, socket.SHUT_WR)
        if code < 0:
            self._fatal_error(os_error(code), "Fatal write error on socket transport")

    def _write_failed(self, code: int) -> None:
        error = os_error(code)
        self._fatal_error(error, "Fatal write error on socket transport")
        if self._empty_waiter is not None:
            self._empty_waiter.set_exception(error)

    def _sent_some(self) -> None:
        try:
            if self._protocol_paused and self._unsent <= self._low:
                self._resume_protocol()
        finally:
            if not self._unsent:
                self._sent_all()

    def _sent_all(self) -> None:
        """Go on with what had to wait until nothing is unsent."""
        if self._empty_waiter is not None and not self._empty_waiter.done():
            self._empty_waiter.set_result(None)
        if self._state == CLOSING:
            self._lose(None)
        elif self._eof_written and self._state == OPEN:
            self._shut_write_side()

    def _make_empty_waiter(self) -> asyncio.Future[None]:
        """A future that is done when nothing is left to send; writing is refused meanwhile."""
        if self._empty_waiter is not None:
            raise RuntimeError("Empty waiter is already set")
        loop: Any = self._loop
        waiter: asyncio.Future[None] = loop.create_future()
        self._empty_waiter = waiter
        if not self._unsent:
            waiter.set_result(None)
        return waiter

    def _reset_empty_waiter(self) -> None:
        self._empty_waiter = None

    # Flow control.

    def _check_high_water(self) -> None:
        if self._unsent > self._high and not self._protocol_paused:
            self._protocol_paused = True
            self._pause_protocol()

    def _pause_protocol(self) -> None:
        try:
            self._protocol.pause_writing()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._report(error, "protocol.pause_writing() failed")

    def _resume_protocol(self) -> None:
        self._protocol_paused = False
        try:
            self._protocol.resume_writing()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._report(error, "protocol.resume_writing() failed")

    # The end.

    def close(self) -> None:  # type: ignore[override]
        """Read no more, send what is unsent, then let the connection go."""
        if self._state != OPEN:
            return
        self._state = CLOSING
        self._stop_reading()
        if not self._unsent:
            self._lose(None)

    def abort(self) -> None:
        """Let the connection go at once; what is unsent is lost."""
        self._force_close(None)

    def _fatal_error(self, error: BaseException, message: str = "Fatal error on transport") -> None:
        if isinstance(error, OSError):
            if self._loop._debug:
                logger.debug("%r: %s", self, message, exc_info=True)
        else:
            self._report(error, message)
        self._force_close(error)

    def _report(self, error: BaseException, message: str) -> None:
        loop: Any = self._loop
        loop.call_exception_handler(
            {"message": message, "exception": error, "transport": self, "protocol": self._protocol}
        )

    def _force_close(self, error: BaseException | None) -> None:
        """Let the connection go because of an error, or of None."""
        if self._state >= LOST:
            return
        self._stop_reading()
        self._drop_unsent()
        self._lose(error)

    def _lose(self, error: BaseException | None) -> None:
        """Have the protocol told in the next turn."""
        self._state = LOST
        if self._interest:
            self._poller.remove(self)
        loop: Any = self._loop
        loop.call_soon(self._call_connection_lost, error, context=self._context)

    def _call_connection_lost(self, error: BaseException | None) -> None:
        protocol = self._protocol
        self._state = CLOSED
        try:
            protocol.connection_lost(error)
        finally:
            self._close_now()
            if self._empty_waiter is not None and not self._empty_waiter.done():
                self._empty_waiter.set_exception(ConnectionError("Connection is closed by peer"))

    def _close_now(self) -> None:
        """Close the socket and forget everybody."""
        Handle.close(self, None)
        self._sock = None
        self._protocol = None
        server = self._server
        self._server = None
        if server is not None:
            server._detach(self)
