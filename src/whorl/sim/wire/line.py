"""Lines: the way from one host to another, with what a network does to packets on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from whorl.sim.wire.timeline import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from whorl.sim.chance.decisions import Decisions, Stream

#: The parts into which the span of a latency is divided: a seed draws one of the bounds.
LATENCY_STEPS = 16
_LAST_STEP = LATENCY_STEPS - 1

#: The longest way by which a packet is overtaken by others, as a multiple of the latency's span.
REORDER_SPANS = 4


@dataclass(frozen=True)
class LinkProfile:
    """The latency, the losses and the limits of a line. Times in nanoseconds, rates from 0 to 1."""

    shortest: int = 200_000  #: the least latency
    longest: int = 2_000_000  #: the greatest latency
    varies: float = 0.3  #: how often a packet takes longer than the shortest time
    loss: float = 0.0
    reorder: float = 0.0
    duplicate: float = 0.0
    bandwidth: int = 0  #: bytes a second; 0: no limit
    mtu: int = 1500
    idle: int = 0  #: a connection is forgotten on the way after so long without a packet; 0: never


class Line:
    """One direction between two hosts."""

    def __init__(self, decisions: Decisions, name: str, quality: LinkProfile) -> None:
        self.name: str = name
        self._set_up(quality)
        self.blocked: int = 0  # how many partitions cut it
        # What departs when a hold is released: functions and their arguments.
        self.held: list[tuple[Callable[..., object], tuple[Any, ...]]] | None = None
        self.packets: Any = None  # where what it carries is noted (sim/files/packets); None: nowhere
        self._latency: Stream = decisions.stream(f"{name}/latency")
        self._loss: Stream = decisions.stream(f"{name}/loss")
        self._reorder: Stream = decisions.stream(f"{name}/reorder")
        self._duplicate: Stream = decisions.stream(f"{name}/duplicate")
        self._free_at = 0  # when the line has sent what it was given, if its bandwidth is limited

    @property
    def quality(self) -> LinkProfile:
        """The latency, the losses and the limits of the line, as they were set last."""
        return self._quality

    @quality.setter
    def quality(self, quality: LinkProfile) -> None:
        self._set_up(quality)

    def _set_up(self, quality: LinkProfile) -> None:
        """Keep each part of a quality, as each packet asks for some."""
        self._quality = quality
        self.idle: int = quality.idle
        self.shortest: int = quality.shortest
        self._longest = quality.longest
        self._bandwidth = quality.bandwidth
        self._varies = quality.varies
        self._loses = quality.loss
        self._reorders = quality.reorder
        self._duplicates = quality.duplicate

    def note(
        self,
        kind: str,
        sender: Any,
        receiver: Any,
        size: int,
        now: int,
        took: int,
        address: Any = None,
    ) -> Any:
        """Note a packet for a trace: its files at both ends, and how long it takes; negative: it is lost.

        `address` is where it goes, if no file is known there. Returns None if there is no trace.
        """
        if self.packets is None:
            return None
        return self.packets.add(self.name, kind, sender, receiver, size, now, took, address)

    def is_lost(self) -> bool:
        """Return whether a packet that is sent now is lost."""
        return bool(self.blocked) or self.held is not None or self._loss.happens(self._loses)

    def release(self) -> None:
        """Let what was held depart, in its order."""
        held, self.held = self.held or [], None
        for depart, args in held:
            depart(*args)

    def travel(self, now: int, size: int) -> int:
        """Return how long a packet of `size` bytes that is sent now is on its way, in nanoseconds."""
        span = self._longest - self.shortest
        step = self._latency.decide(_LAST_STEP + 1, self._varies) if span > 0 else 0
        took = self.shortest + span * step // _LAST_STEP
        if self._bandwidth:
            self._free_at = max(self._free_at, now) + size * SECOND // self._bandwidth
            took += self._free_at - now
        return took

    def overtaken(self) -> int:
        """Return how much later a datagram comes because others overtake it, in nanoseconds."""
        if not self._reorder.happens(self._reorders):
            return 0
        return self._longest * (1 + self._reorder.count % REORDER_SPANS)

    def is_doubled(self) -> bool:
        """Return whether a datagram arrives twice."""
        return self._duplicate.happens(self._duplicates)
