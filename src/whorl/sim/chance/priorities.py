"""Priorities of things that may come in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whorl.sim.chance.decisions import Decisions, Scheduler, Stream, mixed

#: The lengths of runs for which the points of change are drawn; each seed draws one.
_LENGTHS = (8, 32, 128, 512)


class Priorities(Scheduler):
    """The scheduler of one run in which the highest priority comes first (`strategies.Pct`)."""

    def __init__(self, depth: int) -> None:
        Scheduler.__init__(self)
        self._depth = depth
        self._picks = 0
        self._changes: set[int] | None = None
        self._priorities: dict[str, dict[Any, int]] = {}  # of the things of each stream, by their names

    def pick(self, decisions: Decisions, stream: Stream, number: int, keys: Sequence[Any]) -> int:
        """Return the place of the highest priority."""
        changes = self._changes
        if changes is None:
            base = decisions.drawn_base("pct")
            length = _LENGTHS[mixed(base, 0) % len(_LENGTHS)]
            changes = self._changes = {mixed(base, 1 + change) % length for change in range(self._depth - 1)}
        priorities = self._priorities.get(stream.name)
        if priorities is None:
            priorities = self._priorities[stream.name] = {}
        highest = self._highest(decisions, stream.name, priorities, keys)
        if self._picks in changes:
            priorities[_name(keys[highest])] = -1 - self._picks
            highest = self._highest(decisions, stream.name, priorities, keys)
        self._picks += 1
        return highest

    def _highest(
        self, decisions: Decisions, stream: str, priorities: dict[Any, int], keys: Sequence[Any]
    ) -> int:
        best, found = None, 0
        for place, thing in enumerate(keys):
            name = _name(thing)
            priority = priorities.get(name)
            if priority is None:
                priority = priorities[name] = decisions.drawn_base(f"pct/{stream}/{name}")
            if best is None or priority > best:
                best, found = priority, place
        return found


def _name(key: Any) -> Any:
    """Return what names a thing in every run."""
    return getattr(key, "name", key)
