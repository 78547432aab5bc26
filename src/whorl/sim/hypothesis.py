"""Hypothesis: worlds as arguments of a test, beside its other data.

    @given(worlds(), st.lists(st.integers()))
    def test_a_list_arrives(world, numbers):
        world.run(main, numbers)

Hypothesis draws one number for a world: the seed. It shrinks the test's data, and the world of the smallest
example is shrunk by the simulator.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from hypothesis import control
from hypothesis import strategies as st

from whorl.sim.chance.faults import Faults
from whorl.sim.running.report import Report
from whorl.sim.running.result import SimulationFailed
from whorl.sim.running.run import Main, run
from whorl.sim.running.shrink import Failure, shrink

SEEDS = 1 << 32


@dataclass
class DrawnWorld:
    """A world that an example runs its program in."""

    seed: int
    faults: Faults | str = "calm"
    options: dict[str, Any] = field(default_factory=dict, repr=False)
    shrink_s: float = field(default=5.0, repr=False)

    def run(self, main: Main[Any], *args: Any, **options: Any) -> Any:
        """Run `main(world, *args)`; return its value. Raises SimulationFailed if something went wrong."""
        program = functools.partial(_with_world, main, args)
        options = {"faults": self.faults, **self.options, **options}
        result = run(program, seed=self.seed, **options)
        if not result.failed:
            return result.value
        failure = Failure.of(result, options)
        report = Report.of(main, failure)
        if _is_smallest():
            report.shrunk = shrink(program, failure, budget_s=self.shrink_s)
            report.command = f"worlds() again, with the seed {self.seed}; or the tape {{tape}}"
            raise SimulationFailed(str(report)) from failure.finding.exception
        raise SimulationFailed(str(failure.finding)) from failure.finding.exception


async def _with_world(main: Main[Any], args: tuple[Any, ...], world: Any) -> Any:
    return await main(world, *args)


def _is_smallest() -> bool:
    """Return whether Hypothesis shows the smallest example that fails, and searches no more."""
    context: Any = control._current_build_context.value
    return context is None or bool(getattr(context, "is_final", False))


def worlds(
    *, faults: Faults | str = "calm", shrink_s: float = 5.0, **run_options: Any
) -> st.SearchStrategy[DrawnWorld]:
    """Return a strategy whose values are worlds, each of one seed."""
    return st.integers(0, SEEDS - 1).map(lambda seed: DrawnWorld(seed, faults, run_options, shrink_s))
