"""The outcome of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from whorl.sim.chance.decisions import Moment, Place
from whorl.sim.chance.tape import Tape
from whorl.sim.files.packets import Packet
from whorl.sim.world.world import Finding

T = TypeVar("T")


class SimulationFailed(AssertionError):
    """Raised by `Result.check` for a run with a finding."""


@dataclass
class Result(Generic[T]):
    """The outcome of a run."""

    value: T | None  #: what `main` returned
    findings: list[Finding]  #: what went wrong
    remarks: list[str]  #: what is worth a look
    digest: str  #: one number for all that the loops asked of their kernels, with times and bytes
    tape: Tape  #: the decisions of the run: what replays it
    elapsed_s: float  #: virtual seconds
    turns: int  #: turns of all loops
    reached: set[str] = field(default_factory=set)
    story: list[str] = field(default_factory=list)  #: the notes of the world and of the program
    log: list[str] = field(default_factory=list, repr=False)  #: its last lines, if it was kept
    calls: list[tuple[Any, ...]] | None = None  #: all calls, if they were kept
    tasks: list[str] = field(default_factory=list)  #: which task made each of these
    packets: list[Packet] = field(
        default_factory=list, repr=False
    )  #: what the network carried, if it was kept
    moments: Mapping[Place, Moment] = field(default_factory=dict, repr=False)  #: when each decision was made
    asked: list[tuple[str, int, int]] = field(
        default_factory=list, repr=False
    )  #: all decisions, if they were kept
    random_words: int = 0  #: of 32 bits, that a run with a finding drew from `random`
    random_calls: int = 0  #: for other random numbers: os.urandom, secrets, uuid, new generators

    @property
    def failed(self) -> bool:
        """True if something went wrong."""
        return bool(self.findings)

    def check(self) -> T:
        """Return what `main` returned; raise SimulationFailed if something went wrong."""
        if self.findings:
            first = self.findings[0]
            raise SimulationFailed(str(first)) from first.exception
        return self.value  # type: ignore[return-value]
