"""Tapes: the decisions of a run that were not 0, as a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from whorl.sim.chance.decisions import Place
from whorl.sim.chance.faults import Faults

FORMAT = 1


@dataclass(frozen=True)
class Tape:
    """The seed, the decisions, the rates of faults and the digest of a run: they replay it."""

    seed: int
    decisions: Mapping[Place, int]
    faults: Faults | str = "calm"
    digest: str = ""  #: empty: any run will do

    def write(self, path: Path | str, **about: Any) -> None:
        """Write the tape as JSON lines; `about` goes into the first."""
        faults = self.faults if isinstance(self.faults, str) else asdict(self.faults)
        head = {"whorl-tape": FORMAT, "seed": self.seed, "faults": faults, "digest": self.digest, **about}
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
            if head["whorl-tape"] != FORMAT:
                raise ValueError(f"{path} is a tape of another version")
            faults = head["faults"]
            decisions = {(line["stream"], int(line["number"])): int(line["value"]) for line in lines}
            return Tape(
                int(head["seed"]),
                decisions,
                faults if isinstance(faults, str) else Faults(**faults),
                head.get("digest", ""),
            )
        except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"{path} is no tape: {error}") from error
