"""The datagram engine: sending and receiving messages without blocking, for both faces.

    readable -> recv_datagrams, several at once -> `_datagram_arrived`, one after the other
    `_enqueue` -> writable -> send_datagrams, several at once

The socket is watched level-triggered: an edge-triggered one would wake up for every datagram that
the kernel has sent. Datagrams that were received and could not be delivered, because the user
stopped reading or an error left the turn, are kept for later; there is one batch of them at most.

A subclass is the sink: it overrides `_datagram_arrived`, `_receive_failed`, `_receive_refused`,
`_datagram_sent`, `_datagram_failed`, `_datagram_refused` and `_sent_some`.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from whorl.core.kernel.datagrams import DatagramSocket
from whorl.core.limits import DATAGRAMS_PER_EVENT, WRITES_PER_EVENT
from whorl.core.pollers.contract import IOHandle
from whorl.core.states import Event, Life

if TYPE_CHECKING:
    from typing import TypeAlias

    from whorl.core.loop.loop import Loop

    # The data, where it goes (None: where the socket is connected), and whatever the sink adds.
    Queued: TypeAlias = tuple[bytes, Any, Any]

OPEN = int(Life.OPEN)
READABLE = int(Event.READABLE)
WRITABLE = int(Event.WRITABLE)
ERROR = int(Event.ERROR)
HANGUP = int(Event.HANGUP)
EAGAIN = -errno.EAGAIN
EINTR = -errno.EINTR


class Datagrams(IOHandle):
    """A datagram socket (libuv: ``uv_udp_t``, without its callbacks)."""

    __slots__ = (
        "_arrived",
        "_attached_fd",
        "_batch",
        "_first",
        "_header",
        "_kernel",
        "_next",
        "_poller",
        "_queue",
        "_reading",
        "_sock",
        "_socket",
        "_unsent",
    )

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self._kernel = loop._kernel
        self._poller = loop._poller
        self._attached_fd = -1  # the descriptor, also once it is closed: it is shown
        self._sock: Any = None
        self._socket: Any = None
        self._reading = False  # whether the user wants datagrams
        self._arrived: list[Any] = []  # what was received: data, address, data, address ...
        self._next = 0  # the first in there that was not delivered
        self._batch = DATAGRAMS_PER_EVENT  # how many may be received in one turn
        self._queue: list[Queued] = []  # what waits to be sent
        self._first = 0  # the first in there that was not sent
        self._unsent = 0  # how many bytes wait
        self._header = 0  # bytes that each waiting datagram counts beyond its data

    # The sink.

    def _datagram_arrived(self, data: bytes, address: Any) -> None:
        """A datagram was received."""

    def _receive_failed(self, code: int) -> None:
        """Receiving failed with this error number. It goes on."""

    def _receive_refused(self, error: Exception) -> None:
        """A socket with methods of its own raised this."""
        raise error

    def _datagram_sent(self, datagram: Queued) -> None:
        """The kernel took a datagram that had been queued."""

    def _datagram_failed(self, datagram: Queued, code: int) -> None:
        """The kernel refused a datagram that had been queued. The next ones are tried later."""

    def _datagram_refused(self, datagram: Queued, error: BaseException) -> None:
        """A datagram that had been queued cannot be sent: its address is none."""

    def _sent_some(self) -> None:
        """What the kernel takes now of the queue has been sent; it may be empty."""

    # Beginning and ending.

    def _attach(self, sock: Any) -> None:
        """Work on this socket from now on."""
        self._socket = DatagramSocket(sock)
        self._sock = sock
        self._fd = self._attached_fd = self._socket.fd

    def _release(self) -> None:
        """Leave the poller and close the socket."""
        self._reading = False
        self._arrived = []
        self._next = 0
        self._drop_unsent()
        self._poller.remove(self)
        self._fd = -1
        if self._socket is not None:
            self._socket.fd = -1
            self._kernel.close_socket(self._sock)

    def _drop_unsent(self) -> None:
        """Forget what waits to be sent."""
        self._queue = []
        self._first = 0
        self._unsent = 0

    def _update_interest(self) -> None:
        """Let the poller watch for what can be used."""
        wanted = 0
        if self._reading:
            wanted |= READABLE
        if self._queue:
            wanted |= WRITABLE
        if wanted != self._interest:
            self._poller.modify(self, wanted)

    def _on_events(self, seen: int) -> None:
        """Receive one batch, then send what waits."""
        try:
            if self._reading and (seen & (READABLE | HANGUP | ERROR) or self._arrived):
                self._receive()
            if self._interest & WRITABLE and (seen == 0 or seen & (WRITABLE | HANGUP | ERROR)):
                if self._life == OPEN:
                    self._flush()
        except BaseException:
            # What was received and not delivered will cause no event.
            if self._life == OPEN and self._arrived:
                self._run_again()
            raise

    def _run_again(self) -> None:
        """Take another turn without an event of the kernel's."""
        if not self._queued:
            self._queued = True
            self._loop._queue_pending(self)

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
                return
            if count < 0:
                if count != EAGAIN and count != EINTR:
                    self._receive_failed(-count)
                return
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

    # Sending.

    def _enqueue(self, data: Any, address: Any, extra: Any) -> None:
        """Queue a datagram; what is mutable is copied."""
        if type(data) is not bytes:
            data = bytes(data)
        self._queue.append((data, address, extra))
        self._unsent += len(data) + self._header
        self._update_interest()

    def _flush(self) -> None:
        """Send what waits, as far as the kernel takes it."""
        for _ in range(WRITES_PER_EVENT):
            if not self._queue:
                break
            try:
                sent = self._kernel.send_datagrams(self._socket, self._queue, self._first)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self._datagram_refused(self._take_first(), error)
                return
            if sent > 0:
                self._advance(sent)
            elif sent == EAGAIN or sent == EINTR:
                break
            elif not self._tries_again(-sent):
                self._datagram_failed(self._take_first(), -sent)
                return
            else:
                break
        self._sent_some()
        if self._life == OPEN:
            self._update_interest()

    def _tries_again(self, code: int) -> bool:
        """Return whether a datagram that was refused with this error number waits and is tried again."""
        return False

    def _advance(self, sent: int) -> None:
        """Forget what has been sent."""
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
