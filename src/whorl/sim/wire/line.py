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

#: The longest way by which a packet is overtaken by others, as a multiple of the latency's span.
REORDER_SPANS = 4


@dataclass
class Quality:
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

    __slots__ = (
        "_duplicate",
        "_free_at",
        "_latency",
        "_loss",
        "_reorder",
        "blocked",
        "held",
        "name",
        "quality",
    )

    def __init__(self, decisions: Decisions, name: str, quality: Quality) -> None:
        self.name: str = name
        self.quality: Quality = quality
        self.blocked: int = 0  # how many partitions cut it
        # What departs when a hold is released: functions and their arguments.
        self.held: list[tuple[Callable[..., object], tuple[Any, ...]]] | None = None
        self._latency: Stream = decisions.stream(f"{name}/latency")
        self._loss: Stream = decisions.stream(f"{name}/loss")
        self._reorder: Stream = decisions.stream(f"{name}/reorder")
        self._duplicate: Stream = decisions.stream(f"{name}/duplicate")
        self._free_at = 0  # when the line has sent what it was given, if its bandwidth is limited

    def is_lost(self) -> bool:
        """Return whether a packet that is sent now is lost."""
        return bool(self.blocked) or self.held is not None or self._loss.happens(self.quality.loss)

    def release(self) -> None:
        """Let what was held depart, in its order."""
        held, self.held = self.held or [], None
        for depart, args in held:
            depart(*args)

    def travel(self, now: int, size: int) -> int:
        """Return how long a packet of `size` bytes that is sent now is on its way, in nanoseconds."""
        quality = self.quality
        shortest = quality.shortest
        span = quality.longest - shortest
        step = self._latency.decide(LATENCY_STEPS, quality.varies) if span > 0 else 0
        took = shortest + span * step // (LATENCY_STEPS - 1)
        if quality.bandwidth:
            self._free_at = max(self._free_at, now) + size * SECOND // quality.bandwidth
            took += self._free_at - now
        return took

    def overtaken(self) -> int:
        """Return how much later a datagram comes because others overtake it, in nanoseconds."""
        quality = self.quality
        if not self._reorder.happens(quality.reorder):
            return 0
        return quality.longest * (1 + self._reorder.count % REORDER_SPANS)

    def is_doubled(self) -> bool:
        """Return whether a datagram arrives twice."""
        return self._duplicate.happens(self.quality.duplicate)
