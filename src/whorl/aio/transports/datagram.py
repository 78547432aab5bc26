"""The data path of asyncio's datagram transports, between the datagram engine and a protocol.

The states are those of `byte_transport`. As in asyncio, an error of the socket is passed to the protocol and
ends nothing. An exception out of the protocol ends nothing either.
"""

from __future__ import annotations

import asyncio
import errno
import sys
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

from whorl.aio.interop.at_import import TransportSocket, logger
from whorl.aio.transports import states
from whorl.aio.transports.byte_transport import as_bytes_like
from whorl.aio.transports.flow_control import call_pause_or_resume, report_fatal_error, watermarks
from whorl.core import states as handle_states
from whorl.core.handle import Handle
from whorl.core.kernel.errors import os_error
from whorl.handles.datagrams.engine import Datagrams

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop
    from whorl.handles.datagrams.engine import Queued

#: From this count on, each datagram to a lost connection logs a warning; the loss itself counts as one.
QUIET_SENDS = 5

#: An address that every family refuses, for a datagram that waits without one.
NOWHERE = ()

#: Before 3.13, asyncio ignored empty datagrams ...
DROPS_EMPTY = sys.version_info < (3, 13)

#: ... and since then a waiting datagram counts this many bytes in addition to its data.
HEADER_SIZE = 0 if DROPS_EMPTY else 8

WRITE_ERROR = "Fatal write error on datagram transport"

if not cython.compiled:

    def events_in_context(transport: Any, seen: int) -> Any:
        """Handle events in the transport's context."""
        transport._context.run(Datagrams._on_events, transport, seen)


class DatagramEndpoint(Datagrams):
    """A datagram socket and its protocol (asyncio: ``asyncio.DatagramTransport``).

    The loop's methods make these objects, not users. `address` is the only address that datagrams may go to;
    None allows any. `context` is where the protocol's callbacks run; a copy of the caller's by default.
    """

    def __init__(
        self,
        loop: AnyLoop,
        sock: Any,
        protocol: asyncio.BaseProtocol,
        address: Any = None,
        waiter: asyncio.Future[None] | None = None,
        extra: dict[str, Any] | None = None,
        *,
        context: Context | None = None,
    ) -> None:
        super().__init__(loop)
        loop._mark_internal(self)
        self._activate()
        self._extra = dict(extra) if extra else {}
        self._protocol: Any = None
        self._address = address
        self._context = copy_context() if context is None else context
        self._state = states.OPEN
        self._connected = False  # whether datagrams go to the peer, whichever address is given
        self._started = False  # whether connection_made was called
        self._paused = False  # whether the user paused reading
        self._protocol_paused = False
        self._high, self._low = watermarks(None, None)
        self._lost_sends = 0
        self._header = HEADER_SIZE
        self._attach(sock)
        loop._transports.add(self._fd, self)
        self._fill_extra(sock)
        self.set_protocol(protocol)
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
        self._connected = bool(extra["peername"])

    def _begin(self, waiter: asyncio.Future[None] | None) -> None:
        """Start to receive, once the protocol knows its transport."""
        self._started = True
        error: OSError | None = None
        try:
            if self._state == states.OPEN and not self._paused:
                self._start_reading()
        except OSError as refusal:  # by the poller, of one more descriptor
            error = refusal
        if waiter is not None and not waiter.done():
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

    # State and buffers.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a known fact about the endpoint: socket, sockname, peername."""
        return self._extra.get(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol | None:
        """Return the protocol that is called."""
        protocol: asyncio.BaseProtocol | None = self._protocol
        return protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Call another protocol from now on."""
        self._protocol = protocol

    def is_closing(self) -> bool:
        """Return whether the transport is closed or being closed."""
        return self._state != states.OPEN

    def is_reading(self) -> bool:
        """Return whether the protocol gets datagrams."""
        return self._state == states.OPEN and not self._paused

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that wait to be sent; since 3.13 with 8 more for each datagram."""
        return self._unsent

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the low and the high watermark, in bytes."""
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the watermarks, in bytes; ValueError unless high >= low >= 0."""
        self._high, self._low = watermarks(high, low)
        self._check_high_water()

    # Receiving.

    def pause_reading(self) -> None:
        """Give the protocol no datagrams until `resume_reading`."""
        if self._state == states.OPEN and not self._paused:
            self._paused = True
            self._stop_reading()
            if self._loop._debug:
                logger.debug("%r pauses reading", self)

    def resume_reading(self) -> None:
        """Give the protocol datagrams again."""
        if self._state == states.OPEN and self._paused:
            self._paused = False
            if self._started:
                self._start_reading()
            if self._loop._debug:
                logger.debug("%r resumes reading", self)

    def _execute(self) -> None:
        # Events go straight to the engine: `_on_events` would be looked up on the Python subclass.
        seen = self._seen
        self._seen = 0
        self._queued = False
        if self._handle_state == handle_states.OPEN:
            events_in_context(self, seen)

    def _datagram_arrived(self, data: bytes, address: Any) -> None:
        self._protocol.datagram_received(data, address)

    def _receive_failed(self, code: int) -> None:
        self._protocol.error_received(os_error(code))

    def _receive_refused(self, error: Exception) -> None:
        if isinstance(error, OSError):
            self._protocol.error_received(error)
        else:
            self._fatal_error(error, "Fatal read error on datagram transport")

    # Sending.

    def sendto(self, data: bytes | bytearray | memoryview, addr: Any = None) -> None:
        """Send a datagram to `addr`, or to the connected address, or as soon as that is possible.

        Errors go to the protocol's `error_received`. Source: ``asyncio.DatagramTransport.sendto``.
        """
        if type(data) is not bytes:
            if not isinstance(data, (bytes, bytearray, memoryview)):
                raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
            data = as_bytes_like(data)
        if DROPS_EMPTY and not len(data):
            return
        if self._address:
            if addr is not None and addr != self._address:
                raise ValueError(f"Invalid address: must be None or {self._address}")
            addr = self._address
        if self._state >= states.LOST and self._count_lost_write():
            return
        if not self._queue and self._sent_now(data, addr):
            return
        if self._goes_to_peer(addr):
            addr = None
        elif addr is None:
            addr = NOWHERE
        self._enqueue(data, addr, None)
        if self._unsent > self._high:
            self._check_high_water()

    def _count_lost_write(self) -> bool:
        """Return whether a write is lost, as nothing can be sent any more; count it, and warn of many."""
        if self._state != states.CLOSED and not self._address:
            return False  # Until connection_lost was called, as in asyncio.
        if self._lost_sends >= QUIET_SENDS:
            logger.warning("socket.send() raised exception.")
        else:
            self._lost_sends += 1
        return True

    def _goes_to_peer(self, address: Any) -> bool:
        # The peer of a UNIX socket may have no name.
        return self._connected or (address is None and self._extra["peername"] is not None)

    def _sent_now(self, data: Any, address: Any) -> bool:
        """Try to send; return false if the datagram has to wait."""
        if self._held.streams:
            self._held.push_all()
        try:
            if self._connected or self._goes_to_peer(address):
                sent = self._kernel.send_datagram(self._socket, data, None)
            elif address is None:
                sent = self._kernel.sendto(self._sock, data, address)  # for its error
            else:
                sent = self._kernel.send_datagram(self._socket, data, address)
        except (SystemExit, KeyboardInterrupt):
            raise
        except OSError as error:  # Resolving a name: other errors are numbers here.
            self._protocol.error_received(error)
        except BaseException as error:
            self._fatal_error(error, WRITE_ERROR)
        else:
            if sent >= 0:
                self._count_sent(sent)
            elif sent == -errno.EAGAIN or sent == -errno.EINTR:
                return self._state >= states.LOST
            else:
                self._protocol.error_received(os_error(sent))
        return True

    def _datagram_failed(self, datagram: Queued, code: int) -> None:
        self._protocol.error_received(os_error(code))

    def _datagram_refused(self, datagram: Queued, error: BaseException) -> None:
        if isinstance(error, OSError):
            self._protocol.error_received(error)
        else:
            self._fatal_error(error, WRITE_ERROR)

    def _sent_some(self) -> None:
        try:
            if self._protocol_paused and self._unsent <= self._low:
                self._protocol_paused = False
                call_pause_or_resume(self, "resume_writing")
        finally:
            if self._state == states.CLOSING and not self._queue:
                self._state = states.LOST
                self._call_connection_lost(None)

    def _check_high_water(self) -> None:
        if self._unsent > self._high and not self._protocol_paused:
            self._protocol_paused = True
            call_pause_or_resume(self, "pause_writing")

    # The end.

    def close(self) -> None:  # type: ignore[override]
        """Receive no more, send the unsent data, then close the socket."""
        if self._state != states.OPEN:
            return
        self._state = states.CLOSING
        self._stop_reading()
        if not self._queue:
            self._schedule_connection_lost(None)

    def abort(self) -> None:
        """Close the socket at once; unsent data is lost."""
        self._force_close(None)

    def _fatal_error(self, error: BaseException, message: str = "Fatal error on transport") -> None:
        report_fatal_error(self, error, message)
        self._force_close(error)

    def _force_close(self, error: BaseException | None) -> None:
        """Close the socket because of an error or, for None, without one."""
        if self._state >= states.LOST:
            return
        self._stop_reading()
        self._drop_unsent()
        self._schedule_connection_lost(error)

    def _schedule_connection_lost(self, error: BaseException | None) -> None:
        """Schedule `connection_lost` for the next turn; change nothing if memory for that is missing."""
        loop: Any = self._loop
        loop.call_soon(self._call_connection_lost, error, context=self._context)
        self._state = states.LOST
        self._lost_sends = 1  # asyncio counts this write too
        self._poller.remove(self)

    def _call_connection_lost(self, error: BaseException | None) -> None:
        self._state = states.CLOSED
        try:
            self._protocol.connection_lost(error)
        finally:
            self._protocol = None
            self._close_now()

    def _close_now(self) -> None:
        """Close the socket; the protocol stays for a call of `connection_lost` that is still to come."""
        loop: Any = self._loop
        if self._fd >= 0:
            loop._transports.discard(self._fd, self)
        Handle.close(self, None)
        self._sock = None

    def _release_now(self) -> None:
        Datagrams._release(self)
