"""The base of socket and pipe transports: a byte stream that works for a protocol.

    OPEN --close()--> CLOSING --all sent--> LOST --connection_lost()--> CLOSED
      \\------------------abort(), an error--------^

In CLOSING the transport reads no more, and unsent data still goes out. In LOST it sends nothing either,
and `connection_lost` stands in the ready queue. Reading and half-closing are flags beside these states.
A transport is read while it is OPEN, not paused, and the peer has not finished writing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

from whorl.aio.interop.at_import import logger
from whorl.aio.interop.class_snapshot import ClassSnapshot
from whorl.aio.streams.adoption import adopted_connection_made
from whorl.aio.transports import states
from whorl.aio.transports.flow_control import HIGH_WATER, watermarks
from whorl.core import limits
from whorl.core import states as handle_states
from whorl.core.callback import Callback
from whorl.core.handle import Handle
from whorl.core.states import Event
from whorl.handles.streams.engine import Stream

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    import asyncio

    from whorl.aio.loop_type import AnyLoop
    from whorl.core.loop.execution import LoopExecution

READABLE = int(Event.READABLE)
LOW_WATER = HIGH_WATER // 4

if not cython.compiled:

    def events_in_context(transport: Any, seen: int) -> Any:
        """Handle events in the transport's context."""
        transport._context.run(transport._handle_events, seen)

    def connect_in_context(transport: Any, connection_made: Any) -> Any:
        """Call `connection_made` in the transport's context."""
        transport._context.run(connection_made, transport)

    def end_in_context(transport: Any) -> Any:
        """Run `_end` in the transport's context, which calls `connection_lost`."""
        transport._context.run(transport._end, None)

    size_of = len

    def joined(lines: Any) -> bytes | None:
        """Return the lines in one if they are short, and a list or tuple of nothing but bytes objects."""
        if type(lines) not in (list, tuple) or not all(type(line) is bytes for line in lines):
            return None
        limit = min(limits.JOINED_LINES + limits.JOINED_FOR_EACH * len(lines), limits.MOST_JOINED)
        return b"".join(lines) if sum(map(len, lines)) <= limit else None

    def bound(method: Any, instance: Any, owner: Any) -> Any:
        """Return a method as the interpreter gives it for an object or a class."""
        return method.__get__(instance, owner) if hasattr(type(method), "__get__") else method

    def method_of(cls: type, method: Any) -> Any:
        """Return the method unchanged: uncompiled, there are no method descriptors."""
        return method


#: The types of data that the running Python allows to be written.
WRITABLE_KINDS = (
    "bytes-like object" if sys.version_info < (3, 14) else "bytes, bytearray, or memoryview object"
)


def as_bytes_like(data: bytes | bytearray | memoryview) -> bytes | bytearray | memoryview:
    """Return the bytes as an object whose length is the number of bytes. Raise TypeError for other types."""
    if type(data) is bytearray or (
        type(data) is memoryview and data.itemsize == 1 and data.ndim == 1 and data.c_contiguous
    ):
        return data
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"data argument must be a {WRITABLE_KINDS}, not {type(data).__name__!r}")
    view = data if isinstance(data, memoryview) else memoryview(data)
    if view.itemsize == 1 and view.ndim == 1 and view.c_contiguous:
        return view
    return view.tobytes()


def method_of_class(cls: type, method: Any) -> Any:
    """Return the descriptor of an inherited method as one of `cls` itself.

    Anything that is no such descriptor is returned unchanged. The interpreter calls a descriptor without
    detours only for objects of exactly its class.
    """
    return method_of(cls, method)


class InheritedMethod:
    """A method that asyncio's transports inherit from a public class of asyncio's, where tests replace it.

    `base` is the public class of asyncio's transport, and `stock` the method that it had at first. `own`
    stands in its place until a program replaces it in that class, or in one above.
    """

    def __init__(self, base: type, stock: Any, own: Any) -> None:
        self._method = own
        self._name: str = stock.__name__
        self._base = base
        self._snapshot = ClassSnapshot([(base, self._name, stock)])

    def __get__(self, instance: Any, owner: Any) -> Any:
        if self._snapshot.is_current():
            return bound(self._method, instance, owner)
        return bound(getattr(self._base, self._name), instance, owner)


class BaseTransport(Stream):
    """A byte stream and its protocol (asyncio: ``asyncio.BaseTransport``).

    `context` is where the protocol's callbacks run; a copy of the caller's by default.
    """

    def _set_up(self, loop: Any) -> None:
        Stream._set_up(self, loop)
        self._extra_dict: dict[str, Any] | None = None
        self._protocol: Any = None
        self._context: Any = None
        self._state = states.OPEN
        self._started = False  # whether connection_made was called
        self._connection_made: Any = None  # the method to be called by the transport as an entry, to begin
        self._connection_waiter: Any = None  # the future or wait that is then done
        self._queues_itself = False  # whether it queues itself, in place of callbacks, to begin and to end
        self._paused = False  # whether the user paused reading
        Handle._activate(self)

    def __init__(self, loop: AnyLoop, extra: dict[str, Any] | None, context: Context | None) -> None:
        Stream.__init__(self, loop)
        loop._mark_internal(self)
        self._extra_dict = dict(extra) if extra else None
        self._context = copy_context() if context is None else context

    def _schedule_connection_made(self, waiter: asyncio.Future[None] | None) -> None:
        """Schedule `connection_made` for the next turn, and begin then."""
        loop: Any = self._loop
        loop.call_soon(adopted_connection_made(self._protocol), self, context=self._context)
        loop.call_soon(self._begin, waiter, context=self._context)

    def _connect_protocol(self) -> None:
        """Call `connection_made`, and begin."""
        connection_made, waiter = self._connection_made, self._connection_waiter
        self._connection_made = self._connection_waiter = None
        try:
            connect_in_context(self, connection_made)
        except BaseException as error:
            queues: LoopExecution = self._loop  # type: ignore[assignment]
            entry = Callback(self._loop, connection_made, (self,), self._context)
            queues._report_callback_error(entry, error)
        finally:
            self._start(waiter)

    def _begin(self, waiter: asyncio.Future[None] | None) -> None:
        self._start(waiter)

    def _start(self, waiter: Any) -> None:
        """Start to read, once the protocol knows its transport."""
        self._started = True
        error: OSError | None = None
        try:
            if self._state == states.OPEN and not self._paused:
                self._start_reading()
        except OSError as refusal:  # by the poller, of one more descriptor
            error = refusal
        is_waited_for = waiter is not None and not waiter.done()
        if error is None:
            if is_waited_for:
                waiter.set_result(None)
        elif is_waited_for:
            self._force_close(error)
            waiter.set_exception(error)
        else:
            self._fatal_error(error, "Fatal error: the connection cannot be watched")

    @property
    def _extra(self) -> dict[str, Any]:
        """The known facts about the connection, by name; most programs never ask for them."""
        if self._extra_dict is None:
            self._extra_dict = {}
        return self._extra_dict

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a known fact about the connection: socket, sockname, peername, pipe and others."""
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

    # Reading.

    def _pause(self) -> None:
        """Give the protocol no data for a while."""
        if self._state == states.OPEN and not self._paused:
            self._paused = True
            self._stop_reading()
            if self._loop._debug:
                logger.debug("%r pauses reading", self)

    def _resume(self) -> None:
        """Give the protocol data again."""
        if self._state == states.OPEN and self._paused:
            self._paused = False
            if self._started:
                self._start_reading()
            if self._loop._debug:
                logger.debug("%r resumes reading", self)

    def _execute(self) -> None:
        # Events go straight to the engine: `_on_events` would be looked up on the Python subclass.
        if self._queues_itself and not (self._queued and self._started):
            self._run_as_entry()
            return
        seen = self._seen
        self._seen = 0
        self._queued = False
        if self._handle_state == handle_states.OPEN:
            self._poller.skips.event_taken()
            events_in_context(self, seen)

    def _run_as_entry(self) -> None:
        """Run as an entry of the ready queue: begin, or report the end to the protocol."""
        if not self._started:
            self._connect_protocol()
        elif self._state == states.LOST:
            try:
                end_in_context(self)
            except BaseException as error:
                queues: LoopExecution = self._loop  # type: ignore[assignment]
                entry = Callback(self._loop, self._call_connection_lost, (None,), self._context)
                queues._report_callback_error(entry, error)

    def _handle_events(self, seen: int) -> None:
        """Do what the events allow."""
        Stream._on_events(self, seen)

    # The end.

    def _fatal_error(self, error: BaseException, message: str = "Fatal error on transport") -> None:
        """End the connection because of an error; errors of the system are not reported."""
        if isinstance(error, OSError):
            if self._loop._debug:
                logger.debug("%r: %s", self, message, exc_info=error)
        else:
            self._report(error, message)
        self._force_close(error)

    def _report(self, error: BaseException, message: str) -> None:
        loop: Any = self._loop
        loop.call_exception_handler(
            {"message": message, "exception": error, "transport": self, "protocol": self._protocol}
        )

    def _force_close(self, error: BaseException | None) -> None:
        """Close the connection at once, because of an error or, for None, without one."""
        if self._state >= states.LOST:
            return
        self._stop_reading()
        self._drop_unsent()
        self._schedule_connection_lost(error)

    def _schedule_connection_lost(self, error: BaseException | None) -> None:
        """Schedule `connection_lost` for the next turn; change nothing if memory for that is missing."""
        if error is None and self._queues_itself and not self._loop._debug:
            queues: LoopExecution = self._loop  # type: ignore[assignment]
            queues._enqueue(self)
        else:
            loop: Any = self._loop
            loop.call_soon(self._call_connection_lost, error, context=self._context)
        self._state = states.LOST
        if self._interest:
            self._leave_poller()

    def _leave_poller(self) -> None:
        """End the watch; the descriptor is closed after `connection_lost`."""
        self._poller.remove(self)

    def _call_connection_lost(self, error: BaseException | None) -> None:
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        """Call the protocol's `connection_lost`, and forget the protocol."""
        protocol = self._protocol
        self._state = states.CLOSED
        try:
            protocol.connection_lost(error)
        finally:
            self._protocol = None
            self._close_handle()

    def _close_now(self) -> None:
        """Close the descriptor.

        The protocol stays: a finalizer calls this too. It may come after `close`, while the call of
        `connection_lost` is still to come.
        """
        self._close_handle()

    def _close_handle(self) -> None:
        self._begin_close()
        self._sock = None


class WriteTransport(BaseTransport):
    """A transport that is written to, with watermarks (asyncio: ``asyncio.WriteTransport``)."""

    def _set_up(self, loop: Any) -> None:
        BaseTransport._set_up(self, loop)
        self._high = HIGH_WATER
        self._low = LOW_WATER
        self._protocol_paused = False
        self._refuses_writes = False  # whether `_check_writable` may refuse a write
        self._lost_writes = 0  # the number of writes after nothing could be sent any more

    # The methods that a subclass defines.

    def _check_writable(self, method: str) -> None:
        """Raise RuntimeError if nothing may be written now."""

    def _count_lost_write(self) -> bool:
        """Return whether a write is lost, as nothing can be sent any more; count it, and warn of many."""
        return self._state >= states.LOST

    def _sent_all(self) -> None:
        """Continue with the steps that waited until nothing is unsent."""

    # Writing.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send `data`: at once as far as the kernel takes it, the rest when it can."""
        if type(data) is not bytes:
            data = as_bytes_like(data)
        if self._refuses_writes:
            self._check_writable("write")
        size = size_of(data)
        if not size or (self._state != states.OPEN and self._count_lost_write()):
            return
        code = self._send(data, size)
        if code < 0:
            self._write_failed(-code)
        elif self._unsent > self._high:
            self._check_high_water()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send all of `list_of_data` in order, in as few calls of the kernel's as possible."""
        if self._refuses_writes:
            self._check_writable("writelines")
        if not list_of_data:
            return
        self._send_lines(list_of_data)

    def _send_lines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        # Short lines are copied once, here. A list of them would be made, handed on, copied and emptied.
        few = joined(list_of_data)
        if few is not None:
            self._send_joined(few, len(few))
            return
        chunks: list[bytes] = []
        size = 0
        for data in list_of_data:
            chunk = data if type(data) is bytes else bytes(memoryview(data))
            if chunk:
                chunks.append(chunk)
                size += len(chunk)
        if not size or self._count_lost_write():
            return
        self._send_all(chunks, size)
        self._check_high_water()

    def _send_joined(self, data: bytes, size: int) -> None:
        if not size or self._count_lost_write():
            return
        code = self._send(data, size)
        if code < 0:
            self._write_failed(-code)
        elif self._unsent > self._high:
            self._check_high_water()

    def _sent_some(self) -> None:
        try:
            if self._protocol_paused and self._unsent <= self._low:
                self._resume_protocol()
        finally:
            if not self._unsent:
                self._sent_all()

    # Flow control.

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that wait to be sent."""
        return self._unsent

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the low and the high watermark, in bytes."""
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the watermarks, in bytes; ValueError unless high >= low >= 0."""
        self._high, self._low = watermarks(high, low)
        self._check_high_water()

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

    def abort(self) -> None:
        """Close the connection at once; unsent data is lost."""
        self._force_close(None)
