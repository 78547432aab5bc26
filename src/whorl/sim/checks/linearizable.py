"""Linearizability: whether a history could come of operations that happen one after another.

Each operation must seem to happen at one moment between its begin and its end. The search is that of Wing and
Gong with the memory of Lowe, as in Porcupine: it takes back its choices, and visits no state twice.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Protocol

from whorl.sim.checks.history import NEVER

if TYPE_CHECKING:
    from collections.abc import Hashable

    from whorl.sim.checks.history import Op


class Model(Protocol):
    """What the operations mean, if they happen one after another.

    A model may have a method `key(op, args)`: operations with different keys are checked by themselves.
    """

    initial: Hashable

    def apply(self, state: Any, op: str, args: Any) -> tuple[Any, Any]:
        """Return the next state and the answer of an operation."""


def find_violation(ops: list[Op], model: Model) -> str | None:
    """Return a text on operations that have no order; None if all have one."""
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
    must = 0  # bits of the operations that were answered: these have to happen
    for place, op in enumerate(ops):
        if op.is_known:
            must |= 1 << place
    seen: set[tuple[int, Any]] = set()
    longest: list[int] = []
    # Each entry: the operations done, the state, and the choices that are left there.
    stack: list[tuple[int, Any, list[int]]] = [(0, model.initial, _candidates(ops, order, 0))]
    path: list[int] = []
    if not must:
        return None
    while stack:
        done, state, choices = stack[-1]
        if not choices:
            stack.pop()
            if path:
                path.pop()
            continue
        place = choices.pop(0)
        op = ops[place]
        following, answer = model.apply(state, op.name, op.args)
        if op.is_known and answer != op.result:
            continue
        now_done = done | 1 << place
        if (now_done, following) in seen:
            continue
        seen.add((now_done, following))
        path.append(place)
        if len(path) > len(longest):
            longest = list(path)
        if now_done & must == must:
            return None
        stack.append((now_done, following, _candidates(ops, order, now_done)))
    return [ops[place] for place in longest]


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
