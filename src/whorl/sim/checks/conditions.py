"""The checks that a program asks of its world: what holds always, what at some time, what clients may see."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from whorl.sim.checks.history import History, Op
from whorl.sim.checks.linearizable import TooLarge, find_violation
from whorl.sim.wire.timeline import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from whorl.sim.checks.linearizable import Model
    from whorl.sim.wire.timeline import Timeline


class Conditions:
    """The part of a world for checks."""

    timeline: Timeline
    has_ended: bool
    find: Callable[..., None]
    remark: Callable[[str], None]
    conditions: list[Callable[[], None]]  # checked after each turn

    def _set_up_conditions(self) -> None:
        self._models: list[Model] = []
        timeline = self.timeline
        self.history: History = History(lambda: timeline.now)

    def always(self, name: str, predicate: Callable[[], bool]) -> None:
        """Check after each turn of any host that `predicate()` holds; a run in which it fails ends."""

        def check() -> None:
            if not predicate():
                self.conditions.remove(check)
                self.find("always", f"{name}: it does not hold")

        self.conditions.append(check)

    def eventually(self, name: str, predicate: Callable[[], bool], *, within: float) -> None:
        """Check that `predicate()` holds at some time within so many virtual seconds."""
        due = self.timeline.now + round(within * SECOND)
        state = {"held": False}

        def look() -> None:
            if predicate():
                state["held"] = True
                self.conditions.remove(look)

        def is_due() -> None:
            if not state["held"] and not predicate() and not self.has_ended:
                self.find("eventually", f"{name}: it did not hold within {within} s")
            if look in self.conditions:
                self.conditions.remove(look)

        self.conditions.append(look)
        self.timeline.at(due, is_due)

    async def until(self, predicate: Callable[[], bool], within: float, *, every: float = 0.01) -> None:
        """Wait until `predicate()` holds; raise TimeoutError after so many virtual seconds."""
        deadline = self.timeline.now + round(within * SECOND)
        while not predicate():
            if self.timeline.now >= deadline:
                raise TimeoutError(f"the condition did not hold within {within} s")
            await asyncio.sleep(every)

    def record(self, process: Hashable, op: str, args: Any = ()) -> Op:
        """Note that a client begins an operation; call the result's `done(answer)` or `failed()` at its end.

        An operation without an end may have happened or not.
        """
        return self.history.begin(process, op, args)

    def linearizable(self, model: Model) -> None:
        """Check at the end that the recorded operations could have happened one after another (`Model`)."""
        self._models.append(model)

    def check_histories(self) -> None:
        """Check what was recorded; the run is over."""
        for model in self._models:
            try:
                violation = find_violation(self.history.relevant(), model)
            except TooLarge as error:
                self.remark(f"{type(model).__name__}: {error}")
                continue
            if violation is not None:
                self.find("linearizable", f"{type(model).__name__}: {violation}")
