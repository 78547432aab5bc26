"""The stream handle: a byte stream with libuv's callbacks; the base of TCP, Pipe and TTY.

A request never ends inside the call that began it. If the kernel took a write at once, the request waits in
the handle's queue `_completed` for its callback. The handle then queues itself for the pending phase
(`_is_pending`), apart from its events, to call back. Callbacks come in the order connect, writes, shutdown.
When the handle is closed, the callbacks of requests in flight come with ECANCELED, before the callback of
`close`.

The reactions to an event, and their order, are libuv's; descriptors are watched level-triggered for
that reason. The turn that brings a connection does nothing else with the stream.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.core import limits, states
from whorl.core.callback import current_context
from whorl.core.handle import Handle
from whorl.core.kernel.errors import check_result, os_error
from whorl.handles.requests import (
    Connect,
    RequestQueue,
    Shutdown,
    Write,
    contiguous,
    new_write,
    recycle_write,
)
from whorl.handles.streams.engine import Stream
from whorl.handles.streams.listener import Listener

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from typing import Self

    from _typeshed import ReadableBuffer as Buffer

    from whorl.core.loop.loop import Loop

if not cython.compiled:
    from whorl.handles.streams.engine import count_opened, count_sent


class StreamHandle(Stream):
    """A stream that calls back (libuv: ``uv_stream_t``).

    It is active while it reads or listens; its requests keep the loop alive by themselves.
    """

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self._readable = False  # whether the stream is, or is about to be, connected for reading
        self._writable = False  # the same for writing; false after `shutdown`
        self._read_callback: Any = None
        self._get_buffer: Any = None
        self._read_context: Any = None
        self._writes = RequestQueue()  # the writes that were not sent wholly
        self._completed = RequestQueue()  # the finished requests whose callbacks have not run
        self._is_pending = False  # whether it stands in the loop's pending queue
        self._connect_request: Connect | None = None
        self._delayed_error = 0  # the error by which connecting failed at once
        self._shutdown_request: Shutdown | None = None
        self._listener: Listener | None = None
        self._accepted: Any = None  # the connection that waits for `accept`
        self._connection_callback: Any = None
        self._connection_context: Any = None

    # Reading.

    def read_start(
        self,
        callback: Callable[[Self, Any, OSError | None], object],
        get_buffer: Callable[[Self, int], Buffer] | None = None,
    ) -> None:
        """Call `callback(stream, data, error)` with the data that arrives, as bytes.

        At the end of the stream `data` is empty and `error` None. After that, and after an error, the stream
        reads no more.

        With `get_buffer(stream, size)` the caller supplies the memory for each read; `size` is a suggestion.
        `data` is then a memoryview of the part that was filled. A buffer without room is an error of the read
        (ENOBUFS).

        Raises OSError: EALREADY if it reads already, ENOTCONN if there is nothing to read from.
        """
        self._check_open()
        if not callable(callback):
            raise TypeError(f"a callable object was expected by read_start(), got {callback!r}")
        if self._reading:
            raise os_error(errno.EALREADY)
        if not self._readable:
            raise os_error(errno.ENOTCONN)
        self._read_callback = callback
        self._get_buffer = get_buffer
        self._read_context = current_context()
        try:
            self._start_reading()
        except BaseException:
            self._reading = False
            raise
        self._activate()

    def read_stop(self) -> None:
        """Stop reading; data that arrives stays in the kernel. Does nothing if the stream does not read."""
        if self._reading:
            self._stop_reading()
            self._deactivate()

    def is_readable(self) -> bool:
        """Return whether reading can be started (libuv: ``uv_is_readable``)."""
        return self._readable and self._handle_state == states.OPEN

    def _read(self) -> None:
        if self._get_buffer is None:
            Stream._read(self)
        else:
            self._read_into()

    def _read_into(self) -> None:
        """Read once into the caller's memory."""
        try:
            buffer = memoryview(call_with_two(self._read_context, self._get_buffer, self, limits.READ_SIZE))
            if self._handle_state != states.OPEN or not self._reading:
                return
            if not buffer.nbytes:
                self._stop_reading()
                self._end_reading(os_error(errno.ENOBUFS))
                return
            result = self._fill(buffer)
        except Exception:
            self.read_stop()  # it would fail again in every turn
            raise
        self._note_read(result, buffer.nbytes)
        if result > 0:
            filled = buffer.cast("B")[:result]
            call_with_three(self._read_context, self._read_callback, self, filled, None)

    def _fill(self, buffer: memoryview) -> int:
        if self._is_socket:
            return self._kernel.recv_into(self._fd, buffer)
        return self._kernel.read_into(self._fd, buffer)

    def _data_arrived(self, data: bytes) -> None:
        call_with_three(self._read_context, self._read_callback, self, data, None)

    def _end_arrived(self) -> None:
        self._stop_reading()
        self._end_reading(None)

    def _note_read(self, result: int, limit: int) -> None:
        if result < 0 and result != -errno.EAGAIN and result != -errno.EINTR:
            self._read_failed(-result)
        else:
            Stream._note_read(self, result, limit)

    def _read_failed(self, code: int) -> None:
        """End reading and writing after an error; as in libuv, the stream stops after its callback."""
        self._readable = self._writable = False
        try:
            call_with_three(self._read_context, self._read_callback, self, b"", os_error(code))
        finally:
            if self._handle_state == states.OPEN:
                self._stop_reading()
                self._deactivate()

    def _end_reading(self, error: OSError | None) -> None:
        """Call the read callback with the end or an error; nothing more will be read."""
        self._deactivate()
        call_with_three(self._read_context, self._read_callback, self, b"", error)

    # Writing.

    def write(self, data: Buffer, callback: Callable[[Write, OSError | None], object] | None = None) -> Write:
        """Send all of `data`; `callback(request, error)` is called when the kernel has taken it.

        Writes go out in order, also those made before the stream is connected. Mutable data is copied unless
        it is sent at once.

        Raises OSError: EBADF without a descriptor, EPIPE if nothing can be written.
        """
        self._check_writable()
        chunk = contiguous(data)
        size = len(chunk)
        request = new_write(self, callback)
        code = 0
        if size and self._connect_request is not None:
            self._enqueue(chunk, 0, size)
        elif size and self._completed._size and self._has_failed_write():
            self._enqueue(chunk, 0, size)  # This write will most likely fail too, but in its turn.
            self._update_interest()
        elif size:
            code = self._send(chunk, size)
        request._target = self._sent_total + self._unsent
        request._begin()
        if code < 0:
            self._complete_writes()
            self._completed.push_completed(request, -code)
        elif self._unsent or self._connect_request is not None or self._writes._size:
            self._writes.push(request)
        else:
            self._completed.push(request)  # It is finished, as most writes are.
        if not self._unsent:
            self._run_again()
        return request

    def try_write(self, data: Buffer) -> int:
        """Send the part of `data` that the kernel takes at once; return how many bytes.

        Raises BlockingIOError if it takes nothing, or if writes are waiting.
        """
        self._check_writable()
        if (
            self._connect_request is not None
            or self._unsent
            or (self._completed._size and self._has_failed_write())
        ):
            raise os_error(errno.EAGAIN)
        chunk = contiguous(data)
        self._held.push_all()
        if self._is_socket:
            sent = self._kernel.send(self._fd, chunk, 0)
        else:
            sent = self._kernel.write(self._fd, chunk, 0)
        if sent < 0:
            raise os_error(sent)
        if sent:
            count_sent(self, sent)
        return sent

    def shutdown(self, callback: Callable[[Shutdown, OSError | None], object] | None = None) -> Shutdown:
        """End writing, and let the peer know once all data has been written.

        Raises OSError (ENOTCONN) if nothing can be written, or no more.
        """
        self._check_open()
        if not self._writable:
            raise os_error(errno.ENOTCONN)
        request = Shutdown(self, callback)
        self._shutdown_request = request
        self._writable = False
        if self._connect_request is None and not self._unsent:
            self._run_again()
        return request

    def is_writable(self) -> bool:
        """Return whether something can be written (libuv: ``uv_is_writable``)."""
        return self._writable and self._handle_state == states.OPEN

    @property
    def write_queue_size(self) -> int:
        """The number of bytes that wait to be sent."""
        return self._unsent

    def _check_writable(self) -> None:
        if self._handle_state != states.OPEN or self._fd < 0:
            raise os_error(errno.EBADF)
        if not self._writable:
            raise os_error(errno.EPIPE)

    def _has_failed_write(self) -> bool:
        """Return whether a write has failed, and its callback has not been called."""
        request = self._completed._first
        while request is not None:
            if request._code and isinstance(request, Write):
                return True
            request = request._next
        return False

    def _write_failed(self, code: int) -> None:
        """End the first write with an error; the other writes are tried in their turn."""
        self._complete_writes()
        request: Any = self._writes.pop()
        unsent = request._target - self._sent_total
        self._sent_total += unsent  # It goes on after the failed write.
        self._take_out(unsent)
        self._completed.push_completed(request, code)
        if self._interest & states.WRITABLE:
            self._poller.modify(self, self._interest & ~states.WRITABLE)
        self._run_again()

    # Connecting.

    def _check_unconnected(self) -> None:
        """Raise OSError on a second connect. The kernel refuses it too, but not right after a connection."""
        if self._connect_request is not None:
            raise os_error(errno.EALREADY)
        if self._readable and self._sock is not None:
            if not isinstance(self._kernel.peer_name(self._sock), int):
                raise os_error(errno.EISCONN)

    def _begin_connect(self, callback: Any, code: int) -> Connect:
        """Wait for the connection, or report in the next turn that it failed at once with `code`."""
        request = Connect(self, callback)
        self._connect_request = request
        self._readable = self._writable = True
        if code:
            self._delayed_error = code
            self._run_again()
        else:
            self._update_interest()
        return request

    def _finish_connect(self, seen: int) -> None:
        """End the connect request with its result, if there is one by now."""
        code = self._delayed_error
        if not code:
            if not seen & states.OUTGOING:
                return
            code = self._kernel.socket_error(self._sock)
        request, self._connect_request = self._connect_request, None
        self._delayed_error = 0
        assert request is not None
        self._completed.push_completed(request, code)
        if code:
            self._readable = self._writable = False
            self._poller.remove(self)
            self._fail_writes(errno.ECANCELED)
            if self._shutdown_request is not None:
                self._completed.push_completed(self._shutdown_request, errno.ECANCELED)
                self._shutdown_request = None
        else:
            if self._is_socket:
                count_opened(self)
            self._update_interest()
            if not self._unsent and (self._writes._size or self._shutdown_request is not None):
                self._run_again()
        self._run_completed()

    # Listening.

    def _begin_listen(self, backlog: int, callback: Any) -> None:
        """Let the socket take connections."""
        if not callable(callback):
            raise TypeError(f"a callable object was expected by listen(), got {callback!r}")
        check_result(self._kernel.listen(self._sock, backlog))
        self._connection_callback = callback
        self._connection_context = current_context()
        if self._listener is None:
            loop: Loop = self._loop  # type: ignore[assignment]  # each loop is one
            self._listener = Listener(loop, self._sock, self._connection_arrived, self._accept_failed)
            self._listener.resume()
            self._activate()

    def accept(self, client: Any) -> None:
        """Make `client`, a fresh handle of the same loop, the connection that has just arrived.

        Raises BlockingIOError if there is none.
        """
        self._check_open()
        if not isinstance(client, StreamHandle):
            raise TypeError(f"a stream was expected by accept(), got {client!r}")
        self._accept(client)

    def _accept(self, client: StreamHandle) -> None:
        if client.loop is not self.loop:
            raise ValueError("the client belongs to another loop")
        client._check_open()
        client._check_unused()
        if self._accepted is None or self._listener is None:
            raise os_error(errno.EAGAIN)
        sock, self._accepted = self._accepted, None
        client._attach_socket(sock)
        client._begin(True, True)
        self._listener.resume()

    def _connection_arrived(self, sock: Any) -> None:
        self._accepted = sock
        try:
            call_with_two(self._connection_context, self._connection_callback, self, None)
        finally:
            if self._accepted is not None and self._listener is not None:
                self._listener.pause()  # until the user accepts

    def _accept_failed(self, code: int) -> None:
        call_with_two(self._connection_context, self._connection_callback, self, os_error(code))

    # Descriptors.

    def _attach_socket(self, sock: Any) -> None:
        """Work on this socket from now on."""
        raise NotImplementedError

    def _begin(self, readable: bool, writable: bool) -> None:
        """Note in which directions the attached descriptor is connected."""
        self._readable = readable
        self._writable = writable
        if self._is_socket:
            count_opened(self)

    def _check_unused(self) -> None:
        if self._fd >= 0:
            raise os_error(errno.EBUSY)

    def _check_free(self, fd: int) -> None:
        """Raise OSError if another handle of the loop watches the descriptor."""
        if self._poller.find(fd) is not None:
            raise os_error(errno.EEXIST)

    def set_blocking(self, blocking: bool) -> None:
        """Set or clear the descriptor's blocking mode, for its other users (``uv_stream_set_blocking``).

        The handle itself works as before: its calls never block on sockets, only on pipes and terminals.
        """
        if self._handle_state != states.OPEN or self._fd < 0:
            raise os_error(errno.EBADF)
        check_result(self._kernel.set_blocking(self._fd, bool(blocking)))

    def send_buffer_size(self, size: int | None = None) -> int:
        """Return the size of the kernel's buffer for sending, after setting it unless `size` is None."""
        return self._buffer_size(socket.SO_SNDBUF, size)

    def receive_buffer_size(self, size: int | None = None) -> int:
        """Return the size of the kernel's buffer for receiving, after setting it unless `size` is None."""
        return self._buffer_size(socket.SO_RCVBUF, size)

    def _buffer_size(self, option: int, size: int | None) -> int:
        if self._handle_state != states.OPEN or self._sock is None:
            raise os_error(errno.EBADF)
        if size is not None:
            check_result(self._kernel.set_option(self._sock, socket.SOL_SOCKET, option, size))
        return int(check_result(self._kernel.get_option(self._sock, socket.SOL_SOCKET, option)))

    # Events.

    def _update_interest(self) -> None:
        if self._connect_request is not None and not self._edge:
            self._poller.modify(self, states.WRITABLE)
        else:
            Stream._update_interest(self)

    def _run_again(self) -> None:
        """Take a turn in the pending phase."""
        if not self._is_pending:
            self._is_pending = True
            self._loop._queue_pending(self)

    def _execute(self) -> None:
        """Take a turn, for events or from the pending queue. A handle with both stands in two queues."""
        if self._queued:
            seen = self._seen
            self._seen = 0
            self._queued = False
            if self._handle_state == states.OPEN and seen:
                self._on_events(seen)
        elif self._is_pending:
            self._is_pending = False
            if self._handle_state == states.OPEN:
                self._on_events(0)

    def _on_events(self, seen: int) -> None:
        try:
            self._react(seen)
        except BaseException:
            # The rest must not wait for an event that may never come.
            if self._handle_state == states.OPEN:
                self._run_again()
            raise

    def _react(self, seen: int) -> None:
        """Do what the events allow; without events, call back for the finished requests."""
        if seen:
            seen &= self._interest | states.ERROR | states.HANGUP
            if seen == states.ERROR or seen == states.HANGUP:
                seen |= self._interest  # It came alone: reading or writing will find the error.
            if not seen:
                return
        if self._connect_request is not None:
            self._finish_connect(seen)
            return
        if self._reading and seen & (states.READABLE | states.ERROR | states.HANGUP):
            self._read()
        if self._handle_state == states.OPEN and (seen == 0 or seen & states.OUTGOING):
            if self._unsent:
                self._flush()
            self._settle()

    def _settle(self) -> None:
        """Call back for the finished requests, and shut the writing side if that is due."""
        self._complete_writes()
        if self._completed._size:
            self._run_completed()
        if self._shutdown_request is not None and not self._unsent and self._handle_state == states.OPEN:
            self._shut()

    def _complete_writes(self) -> None:
        """Move the writes that have been sent to the queue of finished requests."""
        while self._writes._size:
            request: Any = self._writes._first
            if request._target > self._sent_total:
                break
            self._completed.push_completed(self._writes.pop(), 0)

    def _fail_writes(self, code: int) -> None:
        """Drop all unsent data, and end its writes with `code`."""
        self._drop_unsent()
        while self._writes._size:
            self._completed.push_completed(self._writes.pop(), code)

    def _shut(self) -> None:
        """Let the kernel shut the writing side."""
        request, self._shutdown_request = self._shutdown_request, None
        assert request is not None
        self._held.push_all()
        code = -errno.ENOTSOCK if self._sock is None else self._kernel.shutdown(self._sock, socket.SHUT_WR)
        request._finish(-code)

    def _run_completed(self) -> None:
        """Call back for the requests that are finished by now."""
        for _ in range(self._completed._size):
            if not self._completed._size:
                break
            request = self._completed.pop()
            request._finish(request._code)
            recycle_write(request)

    # The end.

    def _release(self) -> None:
        self._readable = self._writable = False
        if self._is_pending:
            self._is_pending = False
            self._loop._unqueue_pending(self)
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._accepted is not None:
            self._kernel.close_socket(self._accepted)
            self._accepted = None
        Stream._release(self)

    def _finish_close(self) -> None:
        try:
            self._cancel_requests()
        except BaseException:
            self._loop._handle_closing(self)  # the rest comes in the next closing phase
            raise
        self._read_callback = self._get_buffer = self._connection_callback = None
        Handle._finish_close(self)

    def _cancel_requests(self) -> None:
        """End all requests: the finished ones with their result, the others with ECANCELED."""
        if self._connect_request is not None:
            self._completed.push_completed(self._connect_request, errno.ECANCELED)
            self._connect_request = None
        self._complete_writes()
        self._fail_writes(errno.ECANCELED)
        if self._shutdown_request is not None:
            self._completed.push_completed(self._shutdown_request, errno.ECANCELED)
            self._shutdown_request = None
        self._run_completed()


if not cython.compiled:
    from whorl.core.callback import call_with_three, call_with_two
