"""Channels: one direction of a connection. Bytes in order, an end, and the room they take.

A packet that is lost is sent again after a while, and what was sent later waits for it. So a program sees a
lost packet as delay, as with TCP.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from whorl.sim.files.file import File, Machine
from whorl.sim.wire.timeline import SECOND, Event

if TYPE_CHECKING:
    from whorl.sim.wire.line import Line

#: The first time after which an unanswered packet is sent again, the longest, and the number of attempts
#: (man 7 tcp: tcp_retries2).
FIRST_RETRY = SECOND // 5
LONGEST_RETRY = 120 * SECOND
RETRIES = 15

#: How long bytes wait for more (man 7 tcp: TCP_CORK), and how many leave without waiting.
LONGEST_WAIT_FOR_MORE = SECOND // 5
SEGMENT = 65_536

END = None


def _kind(packet: bytes | None) -> str:
    """Return the kind of a packet, as a trace shows it."""
    return "fin" if packet is END else "data"


class Flow:
    """A connection as a box on the way knows it, which translates addresses (NAT)."""

    def __init__(self) -> None:
        self._active = 0  # when the last packet passed
        self._is_forgotten = False

    def passes(self, now: int, idle: int) -> bool:
        """Return whether a packet passes; none does once the connection was idle for longer than `idle`."""
        if self._active and now - self._active > idle:
            self._is_forgotten = True
        self._active = now
        return not self._is_forgotten


class Arrival(Event):
    """The arrival of a packet at the end of its channel."""

    def __init__(self, channel: Channel, number: int, packet: bytes | None) -> None:
        self._channel = channel
        self._number = number
        self._packet = packet

    def happen(self) -> None:
        self._channel._reach(self._number, self._packet)


class Channel:
    """One direction of a connection."""

    def __init__(
        self,
        sender: File,
        receiver: File,
        line: Line,
        capacity: int,
        flow: Flow,
    ) -> None:
        self._flow = flow
        self.sender: File | None = sender  # None: it has closed its descriptor
        self.receiver: File | None = receiver
        self.line: Line = line
        self.capacity: int = capacity
        self.arrived: bytearray = bytearray()
        self.in_flight: int = 0
        self.closed_at: int = -1  # when the sender has closed its descriptor
        self.end_sent: bool = False
        self.ended: bool = False  # the end has arrived
        self.was_full: bool = False  # the sender was refused, and waits for room
        self.refuses: bool = False  # the receiver has shut both directions, and answers data by a reset
        self.holds_more: bool = False  # whether what is sent now may wait for more (MSG_MORE)
        self._more: bytearray = bytearray()  # what waits
        self._sent = 0  # how many packets were sent
        self._landed = 0  # how many have arrived
        self._held: dict[int, bytes | None] = {}  # lost packets, and what waits for them, by number
        self._shown: dict[int, Any] = {}  # packets under way, for a trace
        self._last = 0  # when the last packet arrives
        self._retries = 0
        self._since = 0  # when the packet was sent first that was not answered
        #: The sender's machine lost its power, and with it what it was to send again.
        self.sender_lost: bool = False
        self.receiver_lost: bool = False  # the receiver's machine lost its power, and knows of no connection

    def room(self) -> int:
        """Return how many bytes may be sent now."""
        return self.capacity - len(self.arrived) - self.in_flight

    def send(self, data: bytes) -> None:
        """Send bytes for which there is room."""
        self.in_flight += len(data)
        if self.holds_more:
            if not self._more and (machine := self._machine()) is not None:
                machine.after(LONGEST_WAIT_FOR_MORE, self._push_late, self._sent)
            self._more += data
            if len(self._more) >= SEGMENT:
                self.push()
        elif self._more:
            self._more += data
            self.push()
        else:
            self._travel(data)

    def push(self) -> None:
        """Send what waits for more."""
        if self._more:
            data, self._more = bytes(self._more), bytearray()
            self._travel(data)

    def _push_late(self, sent: int) -> None:
        """Do so after a while, unless a packet has left meanwhile, and all that waited with it."""
        if self._sent == sent:
            self.push()

    def drop_more(self) -> None:
        """Forget what waits for more: the connection is reset, or the sender's machine lost its power."""
        self.in_flight -= len(self._more)
        self._more.clear()

    def send_end(self) -> None:
        """Send the end, after all bytes."""
        if self.end_sent:
            return
        self.push()
        self.end_sent = True
        self._travel(END)

    def _travel(self, packet: bytes | None) -> None:
        number = self._sent
        self._sent = number + 1
        if self._held:
            self._held[number] = packet
            return
        line = self.line
        if line.held is not None:
            line.held.append((self._depart, (number, packet)))
        elif self._is_lost(line):
            self._show(line, _kind(packet), len(packet or b""), -1)
            self._hold(number, packet)
        else:
            self._depart(number, packet)

    def _show(self, line: Line, kind: str, size: int, took: int) -> Any:
        """Note a packet for a trace; return it, or None."""
        machine = self._machine()
        if line.packets is None or machine is None:
            return None
        return line.note(kind, self.sender, self.receiver, size, machine.time(), took)

    def _is_lost(self, line: Line) -> bool:
        idle, flow, machine = line.idle, self._flow, self._machine()
        if idle and machine is not None and not flow.passes(machine.now(), idle):
            return True
        return line.is_lost()

    def _depart(self, number: int, packet: bytes | None) -> None:
        machine, line = self._machine(), self.line
        if machine is None or machine.is_off:
            return
        now = machine.time()
        time = now + line.travel(now, len(packet or b""))
        if time < self._last:
            time = self._last
        self._last = time
        if line.packets is not None:
            self._shown[number] = self._show(line, _kind(packet), len(packet or b""), time - now)
        machine.send(time - now, Arrival(self, number, packet))

    def _reach(self, number: int, packet: bytes | None) -> None:
        """Arrive, unless the line was cut meanwhile, or an earlier packet is missing."""
        line = self.line
        is_cut = line.blocked or self._is_receiver_off()
        if self._shown and (noted := self._shown.pop(number, None)) is not None:
            noted.is_lost = bool(is_cut)
        if self.receiver_lost and not is_cut:
            if self.sender is not None:
                self._refuse()
        elif number != self._landed:
            self._held[number] = packet
        elif is_cut:
            self._hold(number, packet)
        else:
            self._landed = number + 1
            self._retries = 0
            if packet is not None:
                self.in_flight -= len(packet)
            self._land(packet)

    def _is_receiver_off(self) -> bool:
        return self.receiver is not None and self.receiver.machine.is_off

    def last_heard(self) -> int:
        """Return when the last packet arrived, or will arrive."""
        return self._last

    def is_unanswered(self) -> bool:
        """Return whether a packet is sent again and again."""
        return bool(self._held)

    def _hold(self, number: int, packet: bytes | None) -> None:
        """Keep a packet that was lost, and send it again later with all that wait for it."""
        if self.sender_lost:
            return  # Its machine has forgotten what was not answered.
        is_first = not self._held
        self._held[number] = packet
        if is_first:
            if (machine := self._machine()) is not None:
                self._since = machine.now()
            self._retry_later()

    def _retry_later(self) -> None:
        delay = min(FIRST_RETRY << self._retries, LONGEST_RETRY)
        self._retries += 1
        machine = self._machine()
        if machine is None:
            return
        if limit := self._patience():
            delay = max(0, min(delay, self._since + limit - machine.now()))
        machine.after(delay, self._retry)

    def _patience(self) -> int:
        """Return after which time without an answer the sender gives up; 0: after all attempts."""
        return self.sender.patience() if self.sender is not None else 0

    def _machine(self) -> Machine | None:
        end = self.sender or self.receiver
        return end.machine if end is not None else None

    def _retry(self) -> None:
        """Send everything again from the first packet on that was not answered."""
        line = self.line
        if not self._held:
            return
        if self.sender_lost:
            self._held.clear()
            return
        if self._is_lost(line) or self._is_receiver_off():
            limit, machine = self._patience(), self._machine()
            is_over = limit and machine is not None and machine.now() >= self._since + limit
            if self._retries <= RETRIES and not is_over:
                self._retry_later()
            else:
                self._held.clear()
                if self.sender is not None:
                    self.sender.fail(errno.ETIMEDOUT)
            return
        machine = self._machine()
        if machine is None:
            return
        waiting, self._held = sorted(self._held.items()), {}
        now = machine.now()
        size = sum(len(packet or b"") for _, packet in waiting)
        self._last = max(self._last, now + line.travel(now, size))
        for number, packet in waiting:
            machine.send(self._last - now, Arrival(self, number, packet))
        if line.packets is not None:
            self._shown[number] = self._show(line, "again", size, self._last - now)

    def _land(self, packet: bytes | None) -> None:
        receiver = self.receiver
        if packet is END:
            self.ended = True
            if receiver is not None:
                receiver.changed()
        elif receiver is not None and not self.refuses:
            self.arrived += packet
            receiver.changed()
        else:
            if receiver is not None:
                receiver.reset()
            if self.sender is not None:
                self._refuse()

    def _refuse(self) -> None:
        """Answer bytes that nobody will read by a reset."""
        sender, line = self.sender, self.line
        assert sender is not None
        line.note("rst", None, sender, 0, sender.machine.now(), line.shortest)
        sender.machine.after(line.shortest, sender.reset)

    def take(self, limit: int) -> bytes:
        """Return bytes that have arrived, and make room."""
        arrived = self.arrived
        if limit >= len(arrived):
            data = bytes(arrived)
            arrived.clear()
        else:
            data = bytes(arrived[:limit])
            del arrived[:limit]
        if self.was_full and self.sender is not None and self.room() * 3 >= self.capacity:
            self.was_full = False
            self.sender.machine.after(self.line.shortest, self._tell_room)
        return data

    def _tell_room(self) -> None:
        if self.sender is not None:
            self.sender.changed()
