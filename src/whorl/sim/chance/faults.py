"""The rates of all that can go wrong in a world, and the time that code takes."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whorl.sim.chance.decisions import Decisions


@dataclass(frozen=True)
class Faults:
    """The rate of each kind of fault, from 0 to 1: in a call, for a packet, for a connection."""

    short: float = 0.0  #: a read or a write moves fewer bytes than it could
    again: float = 0.0  #: a call finds nothing, although there is something (EAGAIN)
    emfile: float = 0.0  #: there is no descriptor left (EMFILE)
    enobufs: float = 0.0  #: there is no memory for a socket or a datagram (ENOBUFS)
    aborted: float = 0.0  #: a connection is gone when it is accepted (ECONNABORTED)
    refused: float = 0.0  #: a connection is refused (ECONNREFUSED)
    unreachable: float = 0.0  #: the way to a host is not known (ENETUNREACH)
    reset: float = 0.0  #: an established connection is reset within its first second
    latency: float = 0.3  #: a packet takes longer than the shortest time
    loss: float = 0.0  #: a packet is lost; TCP sends it again
    reorder: float = 0.0  #: a datagram is overtaken by others
    duplicate: float = 0.0  #: a datagram arrives twice
    dns: float = 0.0  #: a name is not found, or not in time
    eio: float = 0.0  #: a read, a write or a sync of a file fails (EIO)
    enospc: float = 0.0  #: there is no room for a write to a file (ENOSPC)
    executor: float = 0.3  #: a job of an executor takes longer than the shortest time
    cpu: float = 0.6  #: a turn of a loop takes time

    @classmethod
    def none(cls) -> Faults:
        """Return a world in which nothing varies."""
        return cls(latency=0.0, executor=0.0, cpu=0.0)

    @classmethod
    def calm(cls) -> Faults:
        """Return a world in which only times vary."""
        return cls()

    @classmethod
    def light(cls) -> Faults:
        """Return a world with a few faults that every program has to bear."""
        return cls(short=0.1, again=0.02, loss=0.01, reorder=0.05, duplicate=0.01)

    @classmethod
    def rough(cls) -> Faults:
        """Return a world with many faults of all kinds."""
        return cls(
            short=0.4,
            again=0.1,
            emfile=0.01,
            enobufs=0.01,
            aborted=0.02,
            refused=0.02,
            unreachable=0.01,
            reset=0.05,
            loss=0.1,
            reorder=0.2,
            duplicate=0.05,
            dns=0.05,
            eio=0.005,
            enospc=0.005,
        )


#: The profiles by name. "swarm": each seed draws which kinds of faults happen, and how often.
PROFILES = {
    "none": Faults.none,
    "calm": Faults.calm,
    "light": Faults.light,
    "rough": Faults.rough,
    "swarm": Faults.rough,
}

#: By what a seed of the swarm multiplies the rates of a rough world; the first is the calm choice.
_FACTORS = (0.0, 0.1, 0.5, 1.0)


@cache
def _rates(name: str) -> Faults:
    return PROFILES[name]()


def drawn(faults: Faults | str, decisions: Decisions) -> Faults:
    """Return the rates of one run."""
    if isinstance(faults, Faults):
        return faults
    rates = _rates(faults)
    if faults != "swarm":
        return rates
    calm = Faults.calm()
    changes = {}
    for field in fields(Faults):
        if getattr(calm, field.name) == 0.0:
            factor = _FACTORS[decisions.stream(f"swarm/{field.name}").decide(len(_FACTORS), 0.5)]
            changes[field.name] = getattr(rates, field.name) * factor
    return replace(rates, **changes)


#: How a turn's time is drawn: not at all, at random, in whole milliseconds, or up to a deadline or arrival.
NONE, RANDOM, GRID, EDGE = range(4)
CPU_MODELS = 4

#: How many seeds let turns take time. Without it few races can happen; the models share these seeds equally.
TAKING_TIME = 0.95


#: The models by the names that programs give them.
MODELS = {"none": NONE, "random": RANDOM, "grid": GRID, "edge": EDGE}


@dataclass(frozen=True)
class Cpu:
    """The time that code takes: in so many turns, and how much. None: as the seed and the faults say.

    Models are "none", "random", "grid" (whole milliseconds) and "edge" (up to a deadline or arrival).
    Raises ValueError for another one, and for a rate that is not from 0 to 1.
    """

    model: str | None = None  #: which of the models; None: each seed draws one
    rate: float | None = None  #: in how many turns, from 0 to 1; None: the rate `cpu` of the faults

    def __post_init__(self) -> None:
        if self.model is not None and self.model not in MODELS:
            raise ValueError(f"there is no model {self.model!r}; there are {', '.join(MODELS)}")
        if self.rate is not None and not 0 <= self.rate <= 1:
            raise ValueError(f"rate must be from 0 to 1, not {self.rate!r}")


#: As the seed and the faults say.
USUAL_CPU = Cpu()


def with_cpu(faults: Faults, cpu: Cpu | None) -> Faults:
    """Return the rates of a run with the rate at which its code takes time."""
    rate = 0.0 if cpu is None or cpu.model == "none" else cpu.rate
    return faults if rate is None else replace(faults, cpu=rate)


class CpuModel:
    """The time that the turns of a run's loops take. Each seed draws a model and a rate."""

    def __init__(self, decisions: Decisions, rate: float, wanted: str | None = None) -> None:
        """Draw the model, unless one is wanted, or the strategy has one."""
        model = decisions.stream("cpu/model")
        forced = decisions.schedule.cpu_model if wanted is None else MODELS[wanted]
        if not rate:
            self.model: int = NONE
        elif forced is None:
            self.model = model.decide(CPU_MODELS, TAKING_TIME)
        else:
            self.model = model.force(forced, CPU_MODELS)
        self.rate: float = rate * (1 + decisions.stream("cpu/rate").uniform(3)) / 2
