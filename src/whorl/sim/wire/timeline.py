"""The clock of a world, and the events to come."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

SECOND = 1_000_000_000
MILLISECOND = 1_000_000
MICROSECOND = 1_000


#: Later than everything.
NEVER = 1 << 62


class Timeline:
    """The clock of a world, and the events to come. Times are integer nanoseconds since it began."""

    __slots__ = ("_events", "_number", "now")

    def __init__(self) -> None:
        self.now: int = 0
        self._number = 0
        self._events: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []

    def post(self, time: int, act: Callable[..., object], args: tuple[Any, ...]) -> None:
        """Call `act` at a time; events of the same time happen in the order of these calls."""
        self._number += 1
        heappush(self._events, (time if time > self.now else self.now, self._number, act, args))

    def at(self, time: int, act: Callable[..., object], *args: Any) -> None:
        """Call `act` at a time, as `post` does."""
        self.post(time, act, args)

    def after(self, delay: int, act: Callable[..., object], *args: Any) -> None:
        """Call `act` after a delay."""
        self.post(self.now + delay, act, args)

    def next_time(self) -> int:
        """Return the time of the next event; NEVER if there is none."""
        return self._events[0][0] if self._events else NEVER

    def happen(self) -> None:
        """Do everything that is due by now."""
        events = self._events
        while events and events[0][0] <= self.now:
            _, _, act, args = heappop(events)
            act(*args)

    def clear(self) -> None:
        """Forget what was to come."""
        self._events.clear()
