"""The options of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from enum import Flag
from pathlib import Path
from typing import Any, TypedDict

from whorl.sim.chance.decisions import Scheduler
from whorl.sim.chance.faults import PROFILES, USUAL_CPU, Cpu, Faults
from whorl.sim.chance.strategies import Delay
from whorl.sim.wire.net import USUAL_NET, Net
from whorl.sim.wire.timeline import NEVER, SECOND

#: What a run may do: write real files, start threads, leave descriptors open, have errors nobody handles.
ALLOWANCES = frozenset({"files", "leaks", "threads", "unhandled"})

#: Whose futures and tasks the loops of a world make: Python's or Whorl's.
TASKS = ("cpython", "compiled")

#: How a world treats TLS: by OpenSSL with chance of the seed, or by OpenSSL as it is.
TLS_WAYS = ("seeded", "real")


class Patches(Flag):
    """The parts of Python that a world replaces."""

    TIME = 1  #: clocks: `time`, `datetime`
    CHANCE = 2  #: `random`, `os.urandom`, `uuid`, OpenSSL
    SOCKETS = 4  #: `socket`, `select`, pipes, descriptors of files
    THREADS = 8  #: executors, threads, processes, signals
    FUTURES = 16  #: the hashes of futures and tasks
    ALL = 31


class RunKeywords(TypedDict, total=False):
    """The same options as keywords, for editors and type checkers."""

    faults: Faults | str
    strategy: Callable[[int], Scheduler] | Delay | None
    limit_s: float
    stall_s: float | None
    turns: int
    real_s: float
    patches: Patches
    tls: str
    allow: Iterable[str]
    cpu: Cpu | None
    net: Net
    tasks: str
    trace: Path | str | None
    keeps_calls: bool
    keeps_log: bool
    thinned: float
    variant: int
    asks: bool


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of a run, as `whorl.sim.run` explains them. Raises ValueError for what is none."""

    faults: Faults | str = "calm"
    strategy: Callable[[int], Scheduler] | Delay | None = None  #: `Delay` is for `check`
    limit_s: float = 7200.0
    stall_s: float | None = None
    turns: int = 1_000_000
    real_s: float = 60.0
    patches: Patches = Patches.ALL
    tls: str = "seeded"
    allow: Iterable[str] = frozenset()
    cpu: Cpu | None = USUAL_CPU
    net: Net = USUAL_NET
    tasks: str = "cpython"
    trace: Path | str | None = None
    keeps_calls: bool = False  #: whether the result has all calls and packets
    keeps_log: bool = False  #: whether it has the log, which the terminal gets otherwise
    thinned: float = 0.0  #: the part of the decisions that become calm ones
    variant: int = 0  #: another number draws other decisions, with the same random numbers of the program
    asks: bool = False  #: whether the result has all decisions that were asked for

    def __post_init__(self) -> None:
        object.__setattr__(self, "allow", frozenset(self.allow))
        if not isinstance(self.faults, Faults) and self.faults not in PROFILES:
            raise ValueError(f"there is no profile {self.faults!r}; there are {', '.join(PROFILES)}")
        if self.stall_s is not None and not 0 < self.stall_s < NEVER / SECOND:
            raise ValueError(f"stall_s must be a positive number of seconds, not {self.stall_s!r}")
        if self.tls not in TLS_WAYS:
            raise ValueError(f"tls is one of {', '.join(TLS_WAYS)}, not {self.tls!r}")
        if unknown := frozenset(self.allow) - ALLOWANCES:
            raise ValueError(f"allow has {min(unknown)!r}; it may have {', '.join(sorted(ALLOWANCES))}")
        if self.tasks not in TASKS:
            raise ValueError(f"tasks must be one of {', '.join(TASKS)}, not {self.tasks!r}")

    def changed(self) -> dict[str, Any]:
        """Return the options that are not the usual ones, by name."""
        usual = {each.name: each.default for each in fields(self)}
        return {name: value for name, value in vars(self).items() if value != usual[name]}
