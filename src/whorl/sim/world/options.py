"""The options of a world."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, TypedDict

from whorl.sim.chance.faults import PROFILES, USUAL_CPU, Cpu, Faults
from whorl.sim.wire.net import USUAL_NET, Net
from whorl.sim.wire.timeline import NEVER, SECOND

#: What a run may do: write real files, start threads, leave descriptors open, have errors nobody handles.
ALLOWANCES = frozenset({"files", "leaks", "threads", "unhandled"})

#: Whose futures and tasks the loops of a world make: Python's or Whorl's.
TASKS = ("cpython", "compiled")


class WorldKeywords(TypedDict, total=False):
    """The options of a world as keywords, for editors and type checkers."""

    faults: Faults | str
    allow: Iterable[str]
    limit_s: float
    stall_s: float | None
    turns: int
    real_s: float
    cpu: Cpu | None
    net: Net
    tasks: str
    keeps_calls: bool
    keeps_log: bool


@dataclass(frozen=True, kw_only=True)
class WorldOptions:
    """The options of a world. Raises ValueError for values that have no meaning."""

    faults: Faults | str = "calm"  #: the rates of faults, or the name of a profile
    allow: Iterable[str] = frozenset()  #: what is no failure
    limit_s: float = 7200.0  #: the most virtual seconds
    stall_s: float | None = None  #: the longest wait of a task of the main host that is no finding
    turns: int = 1_000_000  #: the most turns of its loops
    real_s: float = 60.0  #: the most real seconds
    cpu: Cpu | None = USUAL_CPU  #: the time that code takes; None: none
    net: Net = USUAL_NET  #: what lines do to packets if no link says otherwise
    tasks: str = "cpython"  #: whose tasks the loops make
    keeps_calls: bool = False  #: whether the result has all calls and packets
    keeps_log: bool = False  #: whether it has the log, which is else written to the terminal

    def __post_init__(self) -> None:
        object.__setattr__(self, "allow", frozenset(self.allow))
        if isinstance(self.faults, str) and self.faults not in PROFILES:
            raise ValueError(f"there is no profile {self.faults!r}; there are {', '.join(PROFILES)}")
        if unknown := frozenset(self.allow) - ALLOWANCES:
            raise ValueError(f"allow has {min(unknown)!r}; it may have {', '.join(sorted(ALLOWANCES))}")
        if self.stall_s is not None and not 0 < self.stall_s < NEVER / SECOND:
            raise ValueError(f"stall_s must be a positive number of seconds, not {self.stall_s!r}")
        if self.tasks not in TASKS:
            raise ValueError(f"tasks must be one of {', '.join(TASKS)}, not {self.tasks!r}")

    def changed(self) -> dict[str, Any]:
        """Return the options that are not the usual ones, by name."""
        usual = {each.name: each.default for each in fields(self)}
        return {name: value for name, value in vars(self).items() if value != usual[name]}
