"""The datagram engine: sending and receiving messages without blocking, for both faces.

    readable -> recv_datagrams, several at once -> `_datagram_arrived`, one after the other
    `_enqueue` -> writable -> send_datagrams, several at once

The socket is watched level-triggered: an edge-triggered one would wake up for every datagram that
the kernel has sent. The engine keeps received datagrams that it could not deliver, because the user
stopped reading or an error left the turn. There is one batch of them at most.

A subclass is the sink: it overrides `_datagram_arrived`, `_receive_failed`, `_receive_refused`,
`_datagram_sent`, `_datagram_failed`, `_datagram_refused` and `_sent_some`.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from whorl.core import limits, states
from whorl.core.kernel.datagrams import DatagramSocket
from whorl.core.pollers.contract import IOHandle

if TYPE_CHECKING:
    from typing import TypeAlias

    from whorl.core.loop.loop import Loop

    # The data, its address (None: the connected peer), and the values that the sink adds.
    Queued: TypeAlias = tuple[bytes, Any, Any]


class Datagrams(IOHandle):
    """A datagram socket (libuv: ``uv_udp_t``, without its callbacks)."""

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self._kernel = loop._kernel
        self._poller = loop._poller
        self._held = loop._held
        self._attached_fd = -1  # the descriptor, kept for display when it is closed
        self._sock: Any = None
        self._socket: Any = None
        self._reading = False  # whether the user wants datagrams
        self._arrived: list[Any] = []  # the received batch: data, address, data, address ...
        self._next = 0  # the index of the first one that was not delivered
        self._batch = limits.DATAGRAMS_PER_EVENT  # the number of datagrams that may be received in one turn
        self._queue: list[Queued] = []  # the datagrams that wait to be sent
        self._first = 0  # the index of the first one that was not sent
        self._unsent = 0  # the number of bytes that wait
        self._header = 0  # bytes that each waiting datagram counts beyond its data
        self._sent_total = 0  # the number of bytes that the kernel has taken ...
        self._write_calls = 0  # ... in so many calls
        self._received_total = 0  # the number of bytes that were received ...
        self._read_calls = 0  # ... in so many calls

    # The sink.

    def _datagram_arrived(self, data: bytes, address: Any) -> None:
        """Handle a received datagram."""

    def _receive_failed(self, code: int) -> None:
        """Handle a failed receive with this error number; receiving goes on."""

    def _receive_refused(self, error: Exception) -> None:
        """Handle an exception of a socket that overrides methods."""
        raise error

    def _datagram_sent(self, datagram: Queued) -> None:
        """Note that the kernel took a queued datagram."""

    def _datagram_failed(self, datagram: Queued, code: int) -> None:
        """Note that the kernel refused a queued datagram; the next ones are tried later."""

    def _datagram_refused(self, datagram: Queued, error: BaseException) -> None:
        """Note that a queued datagram cannot be sent, since its address is invalid."""

    def _sent_some(self) -> None:
        """Note that the kernel has taken all of the queue that it takes now; the queue may be empty."""

    # Beginning and ending.

    def _attach(self, sock: Any) -> None:
        """Work on this socket from now on."""
        self._socket = DatagramSocket(sock)
        self._sock = sock
        self._fd = self._attached_fd = self._socket.fd

    def _release(self) -> None:
        """Leave the poller and close the socket."""
        self._reading = False
        if self._arrived:
            self._arrived = []  # It takes memory, which may be missing: only if it must be.
        self._next = 0
        self._drop_unsent()
        self._poller.remove(self)
        self._fd = -1
        if self._socket is not None:
            self._socket.fd = -1
            self._kernel.close_socket(self._sock)

    def _drop_unsent(self) -> None:
        """Drop the datagrams that wait to be sent."""
        if self._queue:
            self._queue = []
        self._first = 0
        self._unsent = 0

    def _update_interest(self) -> None:
        """Let the poller watch for the events that the engine can use."""
        wanted = 0
        if self._reading:
            wanted |= states.READABLE
        if self._queue:
            wanted |= states.WRITABLE
        if wanted != self._interest:
            self._poller.modify(self, wanted)

    def _on_events(self, seen: int) -> None:
        """Receive one batch, then send the queued datagrams."""
        try:
            if self._reading and (seen & (states.READABLE | states.HANGUP | states.ERROR) or self._arrived):
                self._receive()
            if self._interest & states.WRITABLE and (seen == 0 or seen & states.OUTGOING):
                if self._handle_state == states.OPEN:
                    self._flush()
        except BaseException:
            # Received datagrams that were not delivered will cause no event.
            if self._handle_state == states.OPEN and self._arrived:
                self._run_again()
            raise

    def _run_again(self) -> None:
        """Take another turn without an event of the kernel."""
        if not self._queued:
            self._loop._queue_pending(self)  # This may find no memory.
            self._queued = True

    # Receiving.

    def _start_reading(self) -> None:
        self._reading = True
        self._update_interest()
        if self._arrived:
            self._run_again()

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._update_interest()

    def _receive(self) -> None:
        """Receive a batch, unless there is some left of the last one, and deliver it."""
        if not self._arrived:
            try:
                count = self._kernel.recv_datagrams(self._socket, self._arrived, self._batch)
            except Exception as error:
                self._receive_refused(error)
                count = -errno.EAGAIN
            if count < 0:
                if count != -errno.EAGAIN and count != -errno.EINTR:
                    self._receive_failed(-count)
                return
            size = 0
            for place in range(0, len(self._arrived), 2):
                size += len(self._arrived[place])
            self._count_received(size)
        arrived = self._arrived
        try:
            while self._reading and self._next < len(arrived):
                place = self._next
                self._next = place + 2
                self._datagram_arrived(arrived[place], arrived[place + 1])
        finally:
            if self._next >= len(arrived):
                arrived.clear()
                self._next = 0

    # Counting.

    def _count_received(self, size: int) -> None:
        counters = self._loop._figures.counters
        self._received_total += size
        self._read_calls += 1
        counters.bytes_in += size
        counters.reads += 1

    def _count_sent(self, size: int) -> None:
        counters = self._loop._figures.counters
        self._sent_total += size
        self._write_calls += 1
        counters.bytes_out += size
        counters.writes += 1

    # Sending.

    def _enqueue(self, data: Any, address: Any, extra: Any) -> None:
        """Queue a datagram; copy its data if it is mutable."""
        if type(data) is not bytes:
            data = bytes(data)
        self._queue.append((data, address, extra))
        self._unsent += len(data) + self._header
        self._update_interest()

    def _flush(self) -> None:
        """Send the queued datagrams, as far as the kernel takes them."""
        if self._held.streams:
            self._held.push_all()
        refused = False
        for _ in range(limits.WRITES_PER_EVENT):
            if not self._queue:
                break
            try:
                sent = self._kernel.send_datagrams(self._socket, self._queue, self._first)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self._datagram_refused(self._take_first(), error)
                refused = True
                break
            if sent > 0:
                waiting = self._unsent - sent * self._header
                self._advance(sent)
                self._count_sent(waiting - self._unsent)
            elif sent == -errno.EAGAIN or sent == -errno.EINTR:
                break
            elif not self._tries_again(-sent):
                self._datagram_failed(self._take_first(), -sent)
                return
            else:
                break
        if refused:
            return
        self._sent_some()
        if self._handle_state == states.OPEN:
            self._update_interest()

    def _tries_again(self, code: int) -> bool:
        """Return whether a datagram that was refused with this error number waits and is tried again."""
        return False

    def _advance(self, sent: int) -> None:
        """Drop the datagrams that have been sent from the queue."""
        for _ in range(sent):
            self._datagram_sent(self._take_first())

    def _take_first(self) -> Queued:
        """Take the first datagram out of the queue."""
        datagram = self._queue[self._first]
        data = datagram[0]
        self._unsent -= len(data) + self._header
        self._first += 1
        if self._first > 64 or self._first >= len(self._queue):
            del self._queue[: self._first]
            self._first = 0
        return datagram
