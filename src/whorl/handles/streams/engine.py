"""The stream engine: reading and writing a byte stream without blocking, for every kind of stream.

Facts about readiness that shape this file:

* TCP sockets are watched edge-triggered, for both directions at once: one `epoll_ctl` in their life. An edge
  comes once. So the engine remembers that there may be *more to read* until a read returns less than its
  limit. It queues itself again for the rest. A paused reader keeps that note until it resumes.
* Only TCP promises that such a read took all. A UNIX socket ends a read where descriptors were sent, or where
  another writer's data begins. SCTP reads single messages.
* After a hang-up no new edge will come, so reading goes on to the end, short reads or not.
* UNIX sockets, pipes and streams of rare protocols are watched level-triggered: edge-triggered they would
  report every read of the peer as a chance to write.
* One read per event and turn: a busy peer must not keep the others waiting.

A subclass is the sink: it overrides `_data_arrived`, `_end_arrived`, `_read_failed`,
`_write_failed` and `_sent_some`, which run in the turn of the event.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from whorl.core import limits, states
from whorl.core.pollers.contract import IOHandle

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from whorl.core.loop.held_writes import HeldWrites
    from whorl.core.loop.lifecycle import LoopLifecycle

if not cython.compiled:

    def count_read(stream: Stream, size: int) -> None:
        """Count a read that brought so many bytes."""
        counters = stream._loop._figures.counters
        stream._received_total += size
        stream._read_calls += 1
        counters.bytes_in += size
        counters.reads += 1

    def count_sent(stream: Stream, size: int) -> None:
        """Count a write of which the kernel took so many bytes."""
        counters = stream._loop._figures.counters
        stream._sent_total += size
        stream._write_calls += 1
        counters.bytes_out += size
        counters.writes += 1

    def count_opened(stream: Stream) -> None:
        """Count a connection, once."""
        if not stream._is_counted:
            stream._is_counted = True
            stream._loop._figures.counters.connections_opened += 1

    def count_closed(stream: Stream) -> None:
        """Count the end of a connection, once."""
        if stream._is_counted:
            stream._is_counted = False
            stream._loop._figures.counters.connections_closed += 1


#: A flag in `_seen`: an interrupt cut a turn short between reading and writing. The next turn writes first.
CUT_SHORT = 64


class Stream(IOHandle):
    """A byte stream over a descriptor (libuv: ``uv_stream_t``, without its callbacks)."""

    def _set_up(self, loop: Any) -> None:
        IOHandle._set_up(self, loop)
        machine: LoopLifecycle = loop
        self._kernel = machine._kernel
        self._poller = machine._poller
        self._held: HeldWrites = machine._held
        self._attached_fd = -1  # the descriptor, kept for display when it is closed
        self._sock: Any = None  # the socket object of the descriptor, if there is one
        self._is_socket = False
        self._reading = False  # whether the user wants data
        self._more_to_read = False  # whether the kernel may hold data that no event will announce
        self._hung_up = False  # whether the peer is gone or will write no more
        self._urgent = False  # whether there is urgent data, at which a read ends early
        self._last_read = 0  # the size of the last read
        self._chunks: Any = None  # the list of unsent chunks, once there was one
        self._first = 0  # the index of the first chunk that was not sent wholly
        self._offset = 0  # the number of its bytes that were sent
        self._unsent = 0  # the number of unsent bytes in all chunks
        self._sent_total = 0  # the number of bytes that the kernel has taken ...
        self._write_calls = 0  # ... in so many calls
        self._received_total = 0  # the number of bytes that were read ...
        self._read_calls = 0  # ... in so many calls
        self._is_counted = False  # whether it is one of the loop's open connections

    # The sink.

    def _data_arrived(self, data: bytes) -> None:
        """Handle bytes that were read."""

    def _end_arrived(self) -> None:
        """Handle the end of the stream, after the peer's last byte; reading should stop."""

    def _read_failed(self, code: int) -> None:
        """Handle a failed read with this error number; reading should stop."""

    def _write_failed(self, code: int) -> None:
        """Handle a failed write with this error number; the unsent data is still queued."""

    def _sent_some(self) -> None:
        """Note that the kernel took queued bytes; `_unsent` is 0 if it took all of them."""

    def _peer_left(self) -> None:
        """Note that the peer is gone, or will write no more; its last bytes may be still to come."""

    # Beginning and ending.

    def _attach(self, sock: Any, fd: int, is_socket: bool, edge: bool) -> None:
        """Work on this descriptor from now on."""
        self._sock = sock
        self._fd = self._attached_fd = fd
        self._is_socket = is_socket
        self._edge = edge and self._poller.edge_triggered

    def _release(self) -> None:
        """Leave the poller and close the descriptor."""
        self._reading = False
        count_closed(self)
        self._drop_unsent()
        self._poller.remove(self)
        fd = self._fd
        self._fd = -1
        if self._sock is not None:
            self._kernel.close_socket(self._sock)
        elif fd >= 0:
            self._kernel.close(fd)

    def _update_interest(self) -> None:
        """Let the poller watch for the events that the stream can use."""
        if self._edge:
            if not self._interest:
                self._poller.add(self, states.WATCHABLE)
            return
        wanted = 0
        if self._reading:
            wanted |= states.READABLE
        if self._unsent:
            wanted |= states.WRITABLE
        if wanted != self._interest:
            self._poller.modify(self, wanted)

    def _on_events(self, seen: int) -> None:
        """Read once, then write the unsent data."""
        if seen & states.ENDS:
            self._hung_up = True
            self._peer_left()
        if seen & states.PRIORITIZED:
            self._urgent = True
        if seen & states.INCOMING:
            self._more_to_read = True
        is_read = is_done = False
        waits = self._unsent > 0  # Data that is written during the read tries the kernel by itself.
        try:
            if seen & CUT_SHORT and self._unsent:
                self._flush()
            if self._reading and self._more_to_read:
                self._read()
            is_read = True
            if (
                waits
                and self._unsent
                and (seen == 0 or seen & states.OUTGOING)
                and self._handle_state == states.OPEN
            ):
                self._flush()
            is_done = True
        finally:  # `except` would cost each event a look at the exception that is being handled.
            if not is_done:
                # An interrupt: the rest must not wait for an event that may not come again.
                if not is_read and self._unsent and seen & states.OUTGOING:
                    self._seen |= CUT_SHORT
                self._run_again()
        if self._edge and self._reading and self._more_to_read and self._handle_state == states.OPEN:
            self._run_again()

    def _run_again(self) -> None:
        """Take another turn without an event of the kernel."""
        if not self._queued:
            self._loop._queue_pending(self)  # This may find no memory.
            self._queued = True

    # Reading.

    def _start_reading(self) -> None:
        self._reading = True
        self._update_interest()
        if self._edge and self._more_to_read:
            self._run_again()

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            if not self._edge:
                self._update_interest()

    def _read(self) -> None:
        """Read once and hand the data to the sink."""
        limit = self._read_limit()
        if self._is_socket:
            self._handle_read(self._kernel.recv(self._fd, limit), limit)
        else:
            self._handle_read(self._kernel.read(self._fd, limit), limit)

    def _read_limit(self) -> int:
        """Return the limit of the next read: a little more than the last read, if that was large."""
        last = self._last_read
        if last < limits.LONG_READ:
            return limits.READ_SIZE
        limit = 2 * limits.LONG_READ
        while limit <= last and limit < limits.LONGEST_READ:
            limit *= 2
        return limit

    def _handle_read(self, data: bytes | int, limit: int) -> None:
        """Handle the result of a read."""
        if isinstance(data, bytes):
            size = len(data)
            if size < limit and self._last_read in (limit, limit // 2):
                # The previous read reached its limit, and this one seems to be the rest of a message. So the
                # next message of that length is read at once.
                self._last_read += size
            else:
                self._last_read = size
            self._note_read(size, limit)
            if size:
                self._data_arrived(data)
        else:
            self._note_read(data, limit)

    def _note_read(self, result: int, limit: int) -> None:
        """Note whether there may be more to read; tell the sink of the end and of errors."""
        if result > 0:
            count_read(self, result)
            if result < limit and not self._hung_up and not self._urgent:
                self._more_to_read = False
        elif result == -errno.EAGAIN:
            self._more_to_read = self._urgent = False
        elif result != -errno.EINTR:
            self._more_to_read = result == 0  # The end stays readable for a reader that starts again.
            if result == 0:
                self._end_arrived()
            else:
                self._read_failed(-result)

    # Writing.

    def _send(self, data: Any, size: int) -> int:
        """Send `data`, and queue the part that the kernel does not take; return 0 or the negative error."""
        sent = 0
        if self._held.streams:
            self._held.act(self)
        self._poller.skips.expect_events()  # The peer may be on this loop.
        if self._unsent == 0:
            if self._is_socket:
                sent = self._kernel.send(self._fd, data, 0)
            else:
                sent = self._kernel.write(self._fd, data, 0)
            if sent >= size:
                count_sent(self, size)
                return 0
        return self._queue_rest(data, sent, size)

    def _queue_rest(self, data: Any, sent: int, size: int) -> int:
        """Queue the part that the kernel did not take; `sent` is the taken size or a negative error."""
        if sent < 0:
            if sent != -errno.EAGAIN and sent != -errno.EINTR and sent != -errno.ENOBUFS:
                return sent
            if sent != -errno.EAGAIN:
                self._run_again()
            sent = 0
        elif sent:
            count_sent(self, sent)
        self._enqueue(data, sent, size)
        self._update_interest()
        return 0

    def _enqueue(self, data: Any, sent: int, size: int) -> None:
        """Queue `data`, of which `sent` bytes have gone out; copy it if it is mutable."""
        if sent >= size:
            return  # An empty chunk would take the next one's offset.
        if type(data) is not bytes:
            data = bytes(memoryview(data)[sent:])
            size = len(data)  # Another thread may have resized it during the send.
            sent = 0
            if not size:
                return
        if self._unsent == 0:
            self._offset = sent
        if self._chunks is None:
            self._chunks = []
        self._chunks.append(data)
        self._unsent += size - sent

    def _send_all(self, chunks: list[bytes], size: int) -> None:
        """Send the chunks, none of them empty, and keep this list as the queue of the unsent ones."""
        if self._held.streams:
            self._held.act(self)
        self._poller.skips.expect_events()
        if self._unsent:
            self._chunks += chunks
            self._unsent += size
            return
        self._chunks = chunks
        self._unsent = size
        self._flush()
        if self._unsent:
            self._update_interest()

    def _flush(self) -> None:
        """Send the unsent data, as far as the kernel takes it."""
        if self._held.streams:
            self._held.act(self)
        before = self._unsent
        for _ in range(limits.WRITES_PER_EVENT):
            sent = self._send_first()
            if sent >= 0:
                self._advance(sent)
                if self._unsent == 0 or not self._edge:
                    break
            elif sent == -errno.EAGAIN:
                break
            elif sent != -errno.EINTR and sent != -errno.ENOBUFS:
                self._write_failed(-sent)
                return
            elif sent == -errno.ENOBUFS:
                self._run_again()
                break
        else:
            self._run_again()
        if self._unsent != before:
            self._update_interest()
            self._sent_some()

    def _send_first(self) -> int:
        """Send the first chunks of the queue in one call of the kernel; return its result."""
        if len(self._chunks) - self._first == 1:
            if self._is_socket:
                return self._kernel.send(self._fd, self._chunks[self._first], self._offset)
            return self._kernel.write(self._fd, self._chunks[self._first], self._offset)
        if self._is_socket:
            return self._kernel.send_many(self._fd, self._chunks, self._first, self._offset)
        return self._kernel.write_many(self._fd, self._chunks, self._first, self._offset)

    def _advance(self, sent: int) -> None:
        """Take `sent` bytes out of the queue, which the kernel has taken."""
        count_sent(self, sent)
        self._take_out(sent)

    def _take_out(self, sent: int) -> None:
        """Take `sent` bytes out of the queue."""
        if sent == self._unsent:
            self._drop_unsent()
            return
        self._unsent -= sent
        while sent > 0:
            chunk = self._chunks[self._first]
            rest = len(chunk) - self._offset
            if sent < rest:
                self._offset += sent
                break
            sent -= rest
            self._first += 1
            self._offset = 0
        if self._first > 64:
            del self._chunks[: self._first]
            self._first = 0

    def _drop_unsent(self) -> None:
        """Drop the unsent data."""
        if self._chunks is not None:
            self._chunks.clear()
        self._first = 0
        self._offset = 0
        self._unsent = 0
