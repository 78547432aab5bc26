"""The clock of a world, and the events to come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SECOND = 1_000_000_000
MILLISECOND = 1_000_000
MICROSECOND = 1_000


#: Later than everything.
NEVER = 1 << 62


class Event:
    """Something that happens at a time."""

    def __init__(self) -> None:
        self.time: int = 0  # both are set when it is added to a timeline
        self.number: int = 0  # events of the same time happen in this order

    def happen(self) -> None:
        """Do what is due."""
        raise NotImplementedError

    def comes_before(self, other: Event) -> bool:
        """Return whether this event happens first."""
        return self.time < other.time or (self.time == other.time and self.number < other.number)


class Call(Event):
    """A function that is called at a time."""

    def __init__(self, act: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._act = act
        self._args = args

    def happen(self) -> None:
        self._act(*self._args)


class Timeline:
    """The clock of a world, and the events to come. Times are integer nanoseconds since it began."""

    def __init__(self) -> None:
        self.now: int = 0
        self._number = 0
        self._events: list[Event] = []  # a heap: of each pair of entries, the one above them comes first

    def add(self, time: int, event: Event) -> None:
        """Let an event happen at a time; those of the same time happen in the order of these calls."""
        self._number += 1
        event.time, event.number = max(time, self.now), self._number
        events = self._events
        place = len(events)
        events.append(event)
        while place:
            above = (place - 1) // 2
            parent = events[above]
            if parent.comes_before(event):
                break
            events[place] = parent
            place = above
        events[place] = event

    def _take(self) -> Event:
        """Return the first event, and take it out of the heap."""
        events = self._events
        first, last = events[0], events.pop()
        size = len(events)
        place, below = 0, 1
        while below < size:
            following = events[below]
            if below + 1 < size:
                other = events[below + 1]
                if other.comes_before(following):
                    below += 1
                    following = other
            if last.comes_before(following):
                break
            events[place] = following
            place, below = below, 2 * below + 1
        if size:
            events[place] = last
        return first

    def post(self, time: int, act: Callable[..., object], args: tuple[Any, ...]) -> None:
        """Call `act` at a time, as an event."""
        self.add(time, Call(act, args))

    def at(self, time: int, act: Callable[..., object], *args: Any) -> None:
        """Call `act` at a time, as `post` does."""
        self.post(time, act, args)

    def after(self, delay: int, act: Callable[..., object], *args: Any) -> None:
        """Call `act` after a delay."""
        self.post(self.now + delay, act, args)

    def next_time(self) -> int:
        """Return the time of the next event; NEVER if there is none."""
        if not self._events:
            return NEVER
        first = self._events[0]
        return first.time

    def times(self, after: int, until: int) -> list[int]:
        """Return the times of the events after a time and up to another one, in no particular order."""
        found = []
        for event in self._events:
            if after < event.time <= until:
                found.append(event.time)  # a loop: the type of `event` is known here, compiled
        return found

    def happen(self) -> None:
        """Do everything that is due by now."""
        events = self._events
        while events:
            first = events[0]
            if first.time > self.now:
                return
            self._take()
            first.happen()

    def clear(self) -> None:
        """Forget what was to come."""
        self._events.clear()
