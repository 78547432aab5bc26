"""The network of a world by itself, before programs set the links of single hosts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from whorl.sim.chance.faults import Faults
from whorl.sim.wire.line import LinkProfile
from whorl.sim.wire.timeline import SECOND

#: The smallest packet that every host has to take (RFC 791).
_SMALLEST_MTU = 68

#: So many qualities are kept: the runs of a search have few.
_KEPT = 16


@dataclass(frozen=True)
class Net:
    """The lines between hosts for which the program sets no `link`.

    Raises ValueError for times, rates and sizes that no line has.
    """

    latency: float | tuple[float, float] = (0.0002, 0.002)  #: seconds, or the shortest and the longest
    loss: float = 0.0  #: how often a packet is lost; the rate of `Faults` counts if it is higher
    reorder: float = 0.0  #: how often a datagram is overtaken; likewise
    duplicate: float = 0.0  #: how often a datagram arrives twice; likewise
    bandwidth: float | None = None  #: bytes a second; None: no limit
    mtu: int = 1500  #: the largest packet in bytes, for sockets that forbid fragments

    def __post_init__(self) -> None:
        shortest, longest = self.bounds()
        if not 0 <= shortest <= longest:
            raise ValueError(f"latency must be a time, or the shortest and the longest, not {self.latency!r}")
        for name in ("loss", "reorder", "duplicate"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be a rate from 0 to 1, not {getattr(self, name)!r}")
        if self.bandwidth is not None and not self.bandwidth >= 1:
            raise ValueError(f"bandwidth must be 1 byte a second or more, not {self.bandwidth!r}")
        if self.mtu < _SMALLEST_MTU:
            raise ValueError(f"mtu must be {_SMALLEST_MTU} bytes or more, not {self.mtu!r}")

    def bounds(self) -> tuple[float, float]:
        """Return the shortest and the longest latency, in seconds."""
        return self.latency if isinstance(self.latency, tuple) else (self.latency, self.latency)

    @lru_cache(maxsize=_KEPT)  # noqa: B019  # one of the few networks of a process is no loss
    def quality(self, faults: Faults) -> LinkProfile:
        """Return what such a line does to packets in a world with faults."""
        shortest, longest = (round(seconds * SECOND) for seconds in self.bounds())
        return LinkProfile(
            shortest=shortest,
            longest=longest,
            varies=faults.latency,
            loss=max(self.loss, faults.loss),
            reorder=max(self.reorder, faults.reorder),
            duplicate=max(self.duplicate, faults.duplicate),
            bandwidth=0 if self.bandwidth is None else round(self.bandwidth),
            mtu=self.mtu,
        )


#: The network of a world that was told nothing else.
USUAL_NET = Net()
