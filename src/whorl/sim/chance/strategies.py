"""Strategies: ways in which seeds pick what comes first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from whorl.sim.chance.decisions import Place, Scheduler, Strategy
from whorl.sim.chance.faults import EDGE, GRID
from whorl.sim.chance.priorities import Priorities

#: The decisions that say only in which order things happen; `Delay` tries them unless it is told others.
ORDERS = ("turn", "events", "ties")


@dataclass(frozen=True)
class Random:
    """Each pick differs from the calm one with probability `p`."""

    p: float = 0.3

    def __call__(self, seed: int) -> Scheduler:
        """Return the scheduler of a seed."""
        return Scheduler(self.p)


@dataclass(frozen=True)
class Edge:
    """As `Random`; and turns take time that ends right at, before or after a deadline or arrival."""

    p: float = 0.3

    def __call__(self, seed: int) -> Scheduler:
        """Return the scheduler of a seed."""
        scheduler = Scheduler(self.p)
        scheduler.cpu_model = EDGE
        return scheduler


@dataclass(frozen=True)
class Pct:
    """Everything has a priority, and the highest comes first.

    At `depth` - 1 points the highest becomes the lowest. So one thing may come first many times in a row,
    which random picks hardly ever do (probabilistic concurrency testing: Burckhardt and others, ASPLOS 2010).
    """

    depth: int = 3

    def __call__(self, seed: int) -> Scheduler:
        """Return the scheduler of a seed."""
        return Priorities(self.depth)


@dataclass(frozen=True)
class Delay:
    """All runs with at most `bound` decisions that are not the calm ones, each of them once.

    `kinds` names the decisions that count: "turn" (which host), "events" (of one poll) and "ties" (timers of
    one time), if nothing else is asked for. There are also "executor" (when a job runs), "latency" and "cpu"
    (how long a turn takes), of which the two smallest values are tried. All others are calm.
    """

    bound: int = 2
    kinds: tuple[str, ...] = ORDERS

    def first(self) -> dict[Place, int]:
        """Return the decisions that all runs share."""
        return {("cpu/model", 0): GRID} if "cpu" in self.kinds else {}

    def following(
        self, tape: dict[Place, int], asked: Iterable[tuple[str, int, int]]
    ) -> list[dict[Place, int]]:
        """Return the tapes that differ from a tape in one more decision, after its last one.

        `asked` is what the run of the tape was asked, in order.
        """
        counted = [ask for ask in asked if ask[0].rpartition("/")[2] in self.kinds]
        places = [(name, number) for name, number, _ in counted]
        taken = [place for place in tape if place in places]
        if len(taken) >= self.bound:
            return []
        after = max((places.index(place) + 1 for place in taken), default=0)
        return [
            {**tape, (name, number): value}
            for name, number, n in counted[after:]
            for value in range(1, n if name.rpartition("/")[2] in ORDERS else min(n, 3))
        ]


def taking_turns(seed: int) -> Scheduler:
    """Return a seed's scheduler if none is asked for: random picks, and priorities for each odd seed."""
    return Pct()(seed) if seed % 2 else Scheduler()


__all__ = ["Delay", "Edge", "Pct", "Random", "Strategy", "taking_turns"]
