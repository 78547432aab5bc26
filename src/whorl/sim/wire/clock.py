"""The clocks of one host: what its programs and its open files see of the world's time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whorl.sim.wire.ports import PortTable
from whorl.sim.wire.timeline import SECOND, Event, Timeline

#: What the monotonic clock of a host shows when the world begins: a host has run for a while.
BOOT_NS = 1000 * SECOND

#: The real time at the world's beginning: 2030-01-01.
EPOCH_NS = 1_893_456_000 * SECOND

#: What a look at the clock costs, so that a loop that waits for a time ends; and how many looks cost nothing
#: in a run whose code takes no time.
LOOK_NS = 50
FREE_LOOKS = 1_000_000


class HostClock:
    """The clocks of a host. `spent` is what the code of the current turn has taken so far."""

    def __init__(self, timeline: Timeline, skew: int, drift: float) -> None:
        """Begin `skew` nanoseconds ahead of the real time, and gain `drift` of all that passes."""
        self.timeline: Timeline = timeline
        self.spent: int = 0
        self.look_ns: int = 0  # what a look at the clock costs
        self._looks = 0
        self.is_off: bool = True  # without power; a process may be dead while its machine works
        self._skew = skew
        self._drift = drift
        # What the machine's sockets ask for each packet.
        self.network: Any = None
        self.tcp_ports: PortTable = None  # type: ignore[assignment]
        self.udp_ports: PortTable = None  # type: ignore[assignment]

    def now(self) -> int:
        """Return the world's time, as the code of this host has moved it, in nanoseconds."""
        return self.time()

    def time(self) -> int:
        """Return what `now` returns, for compiled code."""
        return self.timeline.now + self.spent

    def clock(self) -> int:
        """Return the host's monotonic clock, in nanoseconds."""
        return self._clock_ns()

    def _clock_ns(self) -> int:
        elapsed = self.timeline.now + self.spent
        if self._drift:
            elapsed += round(elapsed * self._drift)
        return BOOT_NS + elapsed

    def look(self) -> int:
        """Return what `clock` returns, for code to which a look costs time."""
        return self._look_ns()

    def _look_ns(self) -> int:
        if not self.look_ns:
            self._looks += 1
            if self._looks > FREE_LOOKS:
                self.look_ns = LOOK_NS
        self.spent += self.look_ns
        return self._clock_ns()

    def real_time(self) -> int:
        """Return the host's real-time clock, in nanoseconds since 1970."""
        return EPOCH_NS + self.clock() - BOOT_NS + self._skew

    def after(self, delay: int, act: Callable[..., object], *args: Any) -> None:
        """Call a function of the world's after a delay in nanoseconds."""
        self.post(delay, act, args)

    def post(self, delay: int, act: Callable[..., object], args: tuple[Any, ...]) -> None:
        """Do what `after` does, for compiled code."""
        self.timeline.post(self.time() + delay, act, args)

    def send(self, delay: int, event: Event) -> None:
        """Let an event of the world's happen after a delay in nanoseconds."""
        self.timeline.add(self.time() + delay, event)
