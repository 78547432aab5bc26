"""Decisions in words: what a run did otherwise than a calm one, and when."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from whorl.sim.chance.decisions import Moment, Place
from whorl.sim.chance.faults import EDGE, GRID, NONE, RANDOM
from whorl.sim.process.threads import STEP
from whorl.sim.wire.line import LATENCY_STEPS

#: What the models of a turn's time are called.
_MODELS = {
    NONE: "turns take no time",
    RANDOM: "turns take parts of milliseconds",
    GRID: "turns take milliseconds",
}
_MODELS[EDGE] = "turns end at the edges of deadlines and arrivals"

_EDGES = ("until", "until right before", "until right after")

#: How a decision of a kind is put: from its owner's name, its value, its moment's details and the CPU model.
_Wording = Callable[[str, int, Any, int], str]


def _cpu(owner: str, value: int, detail: Any, model: int) -> str:
    if model == GRID:
        return f"host {owner}: its turn took {1 + value % 2} ms longer"
    if model == EDGE:
        longer = "" if detail is None else f"{detail / 1e6:.9g} ms longer, "
        return f"host {owner}: its turn took {longer}{_EDGES[value % 3]} a deadline or arrival"
    return f"host {owner}: its turn took {0.125 * value:g} ms longer"


def _events(owner: str, value: int, detail: Any, model: int) -> str:
    return (
        f"host {owner}: of the events of one poll, that of descriptor {detail} came before {_others(value)}"
    )


def _others(value: int) -> str:
    return "another" if value == 1 else f"{value} others"


_KINDS: dict[str, _Wording] = {
    "cpu": _cpu,
    "events": _events,
    "turn": lambda owner, value, detail, model: f"host {detail} took its turn before {_others(value)}",
    "ties": lambda owner, value, detail, model: (
        f"host {owner}: a timer came {'after' if value == 2 else 'before'} others of its time"
    ),
    "executor": lambda owner, value, detail, model: (
        f"host {owner}: a job of its executor waited {value * STEP / 1e6:g} ms longer"
    ),
    "latency": lambda owner, value, detail, model: (
        f"a packet {_way(owner)} took {value}/{LATENCY_STEPS - 1} of the span of latencies longer"
    ),
    "loss": lambda owner, value, detail, model: f"a packet {_way(owner)} was lost",
    "reorder": lambda owner, value, detail, model: f"a datagram {_way(owner)} was overtaken",
    "duplicate": lambda owner, value, detail, model: f"a datagram {_way(owner)} arrived twice",
    "short": lambda owner, value, detail, model: (
        f"host {owner}: a read or write moved only {value}/64 of its bytes"
    ),
    "again": lambda owner, value, detail, model: f"host {owner}: a call found nothing (EAGAIN)",
    "resources": lambda owner, value, detail, model: f"host {owner}: a call failed for lack of something",
    "connect": lambda owner, value, detail, model: f"host {owner}: a connection was refused, or had no way",
    "dns": lambda owner, value, detail, model: (
        f"host {owner}: the name server {'was silent' if value == 2 else 'failed'}"
    ),
    "errors": lambda owner, value, detail, model: f"host {_host(owner)}: a call on its disk failed",
    "times": lambda owner, value, detail, model: f"host {_host(owner)}: a call on its disk took longer",
    "cached": lambda owner, value, detail, model: f"host {_host(owner)}: memory answered for its disk",
    "power": lambda owner, value, detail, model: (
        f"host {_host(owner)}: its disk kept another part at the crash"
    ),
    "reuse-port": lambda owner, value, detail, model: (
        f"host {owner}: listener {value + 1} got the connection"
    ),
}
_WHOLE: dict[str, _Wording] = {
    "cpu/model": lambda owner, value, detail, model: f"in the whole run, {_MODELS[value]}",
    "cpu/rate": lambda owner, value, detail, model: (
        f"in the whole run, turns take time {1 + value}/2 as often"
    ),
    "identities": lambda owner, value, detail, model: "sets of tasks and futures have another order",
    "network/reset": lambda owner, value, detail, model: "a connection is reset",
}


def _host(owner: str) -> str:
    return owner.removesuffix("/disk")


def _way(owner: str) -> str:
    source, arrow, target = owner.partition(">")
    return f"from {source.rstrip('-')} to {target}" if arrow else f"on the line {owner}"


def in_words(decisions: Mapping[Place, int], moments: Mapping[Place, Moment]) -> list[str]:
    """Return a line for each decision, in the order of time."""
    model = decisions.get(("cpu/model", 0), NONE)
    lines = []
    for place, value in decisions.items():
        time, detail = moments.get(place, (None, None))
        text = wording(place[0], value, detail, model)
        if (
            place[0] not in ("cpu/model", "cpu/rate", "identities")
            and time is not None
            and not _is_swarm(place[0])
        ):
            text = f"at {time / 1e6:.3f} ms, {text}"
        lines.append((-1 if time is None else time, text))
    return [text for _, text in sorted(lines, key=lambda line: line[0])]


def _is_swarm(name: str) -> bool:
    return name.startswith("swarm/")


def wording(name: str, value: int, detail: Any = None, model: int = NONE) -> str:
    """Return what a decision means."""
    if name in _WHOLE:
        return _WHOLE[name]("", value, detail, model)
    if _is_swarm(name):
        return f"in the whole run, faults of the kind {name[6:]!r} happen (rate {value} of 3)"
    if name.startswith("choice/"):
        return f"the program's choice {name[7:]!r} was {value}"
    if name.startswith("chance/"):
        return f"the program's chance {name[7:]!r} happened"
    owner, _, kind = name.rpartition("/")
    known = _KINDS.get(kind)
    return known(owner, value, detail, model) if known is not None else f"decision {name!r} was {value}"
