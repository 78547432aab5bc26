"""Tapes: the decisions of a run that were not 0, as a file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from whorl.sim.chance.decisions import Place
from whorl.sim.chance.faults import PROFILES, Faults

#: The format of tapes and of the digests in them. A tape of an older one replays, and no digest is compared.
FORMAT = 4
_OLDER = (1, 2, 3)

_hashes = os.environ.get("PYTHONHASHSEED", "")

#: This process's PYTHONHASHSEED; None if it has none.
HASH_SEED = int(_hashes) if _hashes.isdigit() else None


@dataclass(frozen=True)
class Tape:
    """The seed, the decisions, the rates of faults and the digest of a run: they replay it."""

    seed: int
    decisions: Mapping[Place, int]
    faults: Faults | str = "calm"
    digest: str = ""  #: empty: any run will do
    hash_seed: int | None = None  #: the PYTHONHASHSEED of its process; None: it had none

    @property
    def size(self) -> tuple[int, int]:
        """The distance from a calm run: the number of decisions, and their sum."""
        return len(self.decisions), sum(self.decisions.values())

    def token(self) -> str:
        """Return the tape as one word for a command line, without its digest; `parse` reads it."""
        named = [name for name, profile in PROFILES.items() if name != "swarm" and profile() == self.faults]
        faults = self.faults if isinstance(self.faults, str) else "".join(named[:1])
        faults = faults or json.dumps(_changed(self.faults))  # type: ignore[arg-type]
        decisions = [f"{_quoted(name)}.{number}={value}" for (name, number), value in self.decisions.items()]
        hashes = "" if self.hash_seed is None else str(self.hash_seed)
        return ":".join((str(self.seed), _quoted(faults), hashes, ",".join(decisions)))

    @staticmethod
    def parse(text: str) -> Tape:
        """Read a tape from one word. Raises ValueError for a word that is none."""
        try:
            seed, faults, hashes, decisions = text.split(":")
            taken = {}
            for each in filter(None, decisions.split(",")):
                place, _, value = each.partition("=")
                name, _, number = place.rpartition(".")
                taken[unquote(name), int(number)] = int(value)
            rates: Faults | str = unquote(faults)
            if isinstance(rates, str) and rates.startswith("{"):
                rates = Faults(**json.loads(rates))
            return Tape(int(seed), taken, rates, hash_seed=int(hashes) if hashes else None)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{text!r} is no tape: {error}") from None

    def write(self, path: Path | str, **about: Any) -> None:
        """Write the tape as JSON lines; `about` goes into the first."""
        faults = self.faults if isinstance(self.faults, str) else asdict(self.faults)
        head: dict[str, Any] = {"whorl-tape": FORMAT, "seed": self.seed, "faults": faults}
        head |= {"digest": self.digest, "hash_seed": self.hash_seed, **about}
        lines = [json.dumps(head)]
        for (stream, number), value in sorted(self.decisions.items()):
            lines.append(json.dumps({"stream": stream, "number": number, "value": value}))
        Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")

    @staticmethod
    def read(path: Path | str) -> Tape:
        """Read a tape. Raises ValueError for a file that is none."""
        try:
            head, *lines = [
                json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines() if line
            ]
            version = head["whorl-tape"]
            if version != FORMAT and version not in _OLDER:
                raise ValueError(f"{path} is a tape of another version")
            faults = head["faults"]
            decisions = {(line["stream"], int(line["number"])): int(line["value"]) for line in lines}
            return Tape(
                int(head["seed"]),
                decisions,
                faults if isinstance(faults, str) else Faults(**faults),
                head.get("digest", "") if version == FORMAT else "",
                head.get("hash_seed"),
            )
        except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"{path} is no tape: {error}") from error


def _quoted(text: str) -> str:
    """Return a text without the signs that part a word."""
    return quote(text, safe="/>").replace("~", "%7E")


def _changed(faults: Faults) -> dict[str, float]:
    """Return the rates that differ from a calm world's."""
    calm = asdict(Faults())
    return {name: rate for name, rate in asdict(faults).items() if rate != calm[name]}


def tape_of(text: str | Path) -> Tape | int:
    """Return the tape, or the seed, that a text names: a number, a tape's word, or the path of a tape."""
    if isinstance(text, Path):
        return Tape.read(text)
    if text.isdigit():
        return int(text)
    if text.count(":") >= 3 and not Path(text).exists():
        return Tape.parse(text)
    return Tape.read(text)
