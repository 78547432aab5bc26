"""The options of a run: those of its world, and how the run is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from whorl.sim.chance.decisions import Scheduler
from whorl.sim.chance.strategies import Delay
from whorl.sim.patches.installed import Patches
from whorl.sim.world.options import WorldKeywords, WorldOptions


class RunKeywords(WorldKeywords, total=False):
    """The options of a run as keywords, for editors and type checkers."""

    patches: Patches
    tls: str
    strategy: Callable[[int], Scheduler] | Delay | None
    trace: Path | str | None
    thinned: float
    variant: int
    asks: bool


@dataclass(frozen=True, kw_only=True)
class RunOptions(WorldOptions):
    """The options of a run. Raises ValueError for values that have no meaning."""

    patches: Patches = Patches.ALL  #: the parts of Python that the world replaces
    tls: str = "seeded"  #: "seeded", or "real": the digest then takes only the sizes of what is sent
    strategy: Callable[[int], Scheduler] | Delay | None = None  #: how seeds pick orders; `Delay`: for `check`
    trace: Path | str | None = None  #: the path for a trace
    thinned: float = 0.0  #: the part of the decisions that become calm ones
    variant: int = 0  #: another number draws other decisions, with the same random numbers of the program
    asks: bool = False  #: whether the result has all decisions that were asked for
