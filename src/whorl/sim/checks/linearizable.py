"""Linearizability: whether a history could come of operations that happen one after another.

Each operation must seem to happen at one moment between its begin and its end. The search is that of Wing
and Gong with the memory of Lowe, as in Porcupine. An operation without an answer may happen at any later
time. So a state is of no use that was reached before by fewer of those.
"""

from __future__ import annotations

from collections import defaultdict
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Protocol

from whorl.sim.checks.history import NEVER

if TYPE_CHECKING:
    from collections.abc import Hashable

    from whorl.sim.checks.history import Op


class Model(Protocol):
    """The meaning of operations that happen one after another.

    A model may have a method `key(op, args)`: operations with different keys are checked by themselves.
    """

    initial: Hashable

    def apply(self, state: Any, op: str, args: Any) -> tuple[Any, Any]:
        """Return the next state and the answer of an operation."""


#: So many states are visited, which takes some seconds.
MOST_STATES = 200_000


class TooLarge(Exception):
    """Raised for a history with more orders than can be tried."""


def find_violation(ops: list[Op], model: Model) -> str | None:
    """Return a text on operations that have no order; None if all have one. Raises TooLarge."""
    parts: dict[Any, list[Op]] = defaultdict(list)
    key = getattr(model, "key", None)
    for op in ops:
        parts[key(op.name, op.args) if key is not None else None].append(op)
    for part in parts.values():
        longest = _search(part, model)
        if longest is not None:
            return _shown(part, longest)
    return None


def _search(ops: list[Op], model: Model) -> list[Op] | None:
    """Look for an order; return None if there is one, else the longest beginning of one."""
    order = sorted(range(len(ops)), key=lambda place: ops[place].began)
    must = sum(1 << place for place, op in enumerate(ops) if op.is_known)  # these have to happen
    if not must:
        return None
    seen: dict[tuple[int, Any], list[int]] = {}  # by which unanswered operations each state was reached
    # Each way: how many unanswered operations it uses, the answered ones, a number, all of them, state, path.
    ways: list[tuple[int, int, int, int, Any, Any]] = [(0, 0, 0, 0, model.initial, None)]
    longest: tuple[int, Any] = (0, None)
    states = 0
    while ways:
        unanswered, answered, _, done, state, path = heappop(ways)
        longest = min(longest, (answered, path), key=lambda each: each[0])
        for place in _candidates(ops, order, done):
            op = ops[place]
            following, answer = model.apply(state, op.name, op.args)
            if answer != op.result if op.is_known else following == state:
                continue
            now_done = done | 1 << place
            if now_done & must == must:
                return None
            reached = seen.setdefault((now_done & must, following), [])
            if any(former & ~now_done == 0 for former in reached):
                continue
            reached.append(now_done & ~must)
            states += 1
            if states > MOST_STATES:
                raise TooLarge(f"a history of {len(ops)} operations is too large to be checked")
            used, known = unanswered + (not op.is_known), answered - op.is_known
            heappush(ways, (used, known, states, now_done, following, (place, path)))
    found = []
    path = longest[1]
    while path is not None:
        found.append(ops[path[0]])
        path = path[1]
    return found[::-1]


def _candidates(ops: list[Op], order: list[int], done: int) -> list[int]:
    """Return the operations that may happen next: those that began before any other one ended."""
    found = []
    first_end = NEVER
    for place in order:
        if done >> place & 1:
            continue
        op = ops[place]
        if op.began > first_end:
            break
        found.append(place)
        first_end = min(first_end, op.ended)
    return found


def _shown(ops: list[Op], longest: list[Op]) -> str:
    left = [op for op in ops if op.is_known and op not in longest]
    lines = ["no order explains the answers. The longest one that does:"]
    lines += [f"  {op!r}" for op in longest[-8:]]
    lines.append("Then none of these fits:")
    lines += [f"  {op!r}" for op in left[:8]]
    return "\n".join(lines)
