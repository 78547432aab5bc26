"""The state of a stream reader and its wait: transports put data in here, the reader takes it out."""

from __future__ import annotations

import sys
from typing import Any

from whorl.aio.interop.reusable_future import ReusableFuture
from whorl.aio.streams.buffer import StreamBuffer
from whorl.core.loop.loop import Loop

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if not cython.compiled:
    from whorl.core.callback import has_single_reference

    def attributes_of(thing: Any) -> dict[str, Any]:
        """Return the dictionary of an object of a class written in Python."""
        attributes: dict[str, Any] = thing.__dict__
        return attributes

    def new_wait(loop: Loop) -> StreamWait:
        """Return a new wait for a reader."""
        return StreamWait(loop)

    def new_feed(loop: Loop) -> StreamFeed:
        """Return a new feed."""
        return StreamFeed(loop)


LARGEST = sys.maxsize
ORDINARY = LARGEST // 2


class StreamWait(ReusableFuture):
    """The wait of a reader for data: woken in the next turn, as by a future."""

    def set_result(self, result: None) -> None:
        """Wake the reader: there is data, or the end."""
        self._wake()

    def _wake(self) -> None:
        if self._is_wanted():
            self._done = True
            self._wake_soon()

    def set_exception(self, error: BaseException) -> None:
        """Raise an error in the waiting reader: no data will come."""
        self._future.set_exception(error)


class StreamFeed(StreamBuffer):
    """The state of a Whorl reader, under asyncio's names without the underscore, and its received data.

    `source` is a weak reference to the reader: data for a reader that is gone is dropped. While `is_direct`
    is set, a transport that has data for the reader's protocol may put it in here, without a call of the
    protocol.
    """

    def __init__(self, loop: Loop) -> None:
        self._set_up(loop)

    def _set_up(self, loop: Loop) -> None:
        self._set_up_buffer()
        self._loop: Loop = loop
        self._wait: StreamWait | None = None  # a used wait, to be used again
        self.limit: Any = 0
        self._low = 0  # a paused transport reads again at this number of bytes or fewer
        self._high = 0  # and it is paused above this number
        self.eof: Any = False
        self.exception: BaseException | None = None
        self.waiter: Any = None
        self.paused: Any = False
        self.transport: Any = None
        self.source: Any = None
        self.is_direct: bool = False

    def take_over(self, state: dict[str, Any]) -> None:
        """Take the state out of the attributes of a reader of asyncio's."""
        self.eof = state.pop("_eof")
        self.exception = state.pop("_exception")
        self.paused = state.pop("_paused")
        self.transport = state.pop("_transport")
        self.waiter = state.pop("_waiter")
        self.replace(state.pop("_buffer"))
        self.set_limit(state.pop("_limit"))

    def is_open_to(self, protocol: Any) -> bool:
        """Return whether a transport may put data for this protocol, one of asyncio's, in here."""
        return self.is_direct and "data_received" not in attributes_of(protocol)

    def set_limit(self, limit: Any) -> None:
        """Set the limit of the buffer: any number, also one that no buffer will ever reach."""
        self.limit = limit
        if type(limit) is int and 0 < limit < ORDINARY:
            self._low = limit
            self._high = 2 * limit
        else:
            self._low = int(min(limit, LARGEST))
            self._high = int(min(2 * limit, LARGEST))

    # For transports.

    def _arrived(self, data: bytes) -> None:
        """Do what `data_received` of the reader's protocol does."""
        if self.source() is not None:
            self.put(data)

    def put(self, data: Any) -> None:
        """Do what `feed_data` of the reader does."""
        assert not self.eof, "feed_data after feed_eof"
        if not data:
            return
        self.add(data)
        if self.waiter is not None:
            self._wake_reader()
        if self._count() > self._high and self.transport is not None and not self.paused:
            try:
                self.transport.pause_reading()
            except NotImplementedError:
                self.transport = None  # It cannot be paused, so it is not called again.
            else:
                self.paused = True

    def end(self) -> None:
        """Do what `feed_eof` of the reader does."""
        self.eof = True
        if self.waiter is not None:
            self._wake_reader()

    def _wake_reader(self) -> None:
        waiter = self.waiter
        self.waiter = None
        if type(waiter) is StreamWait:
            own: StreamWait = waiter
            own._wake()
        elif not waiter.cancelled():
            waiter.set_result(None)

    # For the reader.

    def read(self, n: int) -> bytes | None:
        """Return at most `n` bytes, none at the end; None if the reader has to wait, or wants all."""
        if self.exception is not None:
            raise self.exception
        if n <= 0 or (not self.eof and not self._count()):
            return None
        return self.take_and_resume(n)

    def has_failed(self) -> bool:
        """Return whether there is an exception for the reader: to call this method by name costs a third."""
        return self.exception is not None

    def take_and_resume(self, n: int) -> bytes:
        """Return at most `n` bytes; let the transport read again if there was too much and is no more."""
        data = self.take(n)
        if self.paused:
            self.resume()
        return data

    def line(self) -> bytes | None:
        """Return a line with its end; None if there is none within the limit, or an error to be raised."""
        if self.exception is not None:
            return None
        line = self.take_until(b"\n", self._low)
        if line is not None and self.paused:
            self.resume()
        return line

    def resume(self) -> None:
        """Let the transport read again unless too much is there."""
        if self.paused and self._count() <= self._low:
            self.paused = False
            self.transport.resume_reading()

    def wait(self, method: str) -> Any:
        """Return the wait for data; a caller that is not woken has to call `leave`."""
        if self.waiter is not None:
            raise RuntimeError(
                f"{method}() called while another coroutine is already waiting for incoming data"
            )
        assert not self.eof, "_wait_for_data after EOF"
        if self.paused:
            self.paused = False
            self.transport.resume_reading()
        wait = self._wait
        self._wait = None
        if wait is not None and has_single_reference(wait):
            wait._reset()
        else:
            wait = new_wait(self._loop)
        self._wait = self.waiter = wait
        return wait

    def leave(self, wait: Any) -> None:
        """End a wait that was not woken."""
        if self.waiter is wait:
            self.waiter = None
