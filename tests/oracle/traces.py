"""The scripts, and the traces that were recorded of them: files beside this one.

A scenario is one file: the script, a line `---`, the trace. The traces of random scripts are one
compressed file; the scripts follow from their seeds.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
SCENARIOS = HERE / "scenarios"
RANDOM = HERE / "random.xz"
SEEDS = 1000
SEPARATOR = "---"
MARK = "=== "


def scenarios() -> list[str]:
    """Return the names of the scenarios."""
    return sorted(path.stem for path in SCENARIOS.glob("*.txt"))


def read_scenario(name: str) -> tuple[str, list[str]]:
    """Return the script of a scenario and its trace; the trace is None if it has not been recorded."""
    script, _, trace = _path(name).read_text(encoding="utf-8").partition(f"{SEPARATOR}\n")
    return script, trace.splitlines()


def write_scenario(name: str, script: str, trace: list[str]) -> None:
    """Note the trace of a scenario."""
    _path(name).write_text("\n".join([f"{script}{SEPARATOR}", *trace, ""]), encoding="utf-8")


def read_random() -> dict[int, list[str]]:
    """Return the traces of the random scripts, by seed."""
    if not RANDOM.exists():
        return {}
    text = lzma.decompress(RANDOM.read_bytes()).decode()
    return {int(name): trace for name, trace in split(text)}


def write_random(traces: dict[int, list[str]]) -> None:
    """Note the traces of the random scripts."""
    text = join((str(seed), "\n".join(trace)) for seed, trace in sorted(traces.items()))
    RANDOM.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def join(texts: Iterator[tuple[str, str]]) -> str:
    """Return many texts as one, with their names."""
    return "".join(f"{MARK}{name}\n{text.rstrip()}\n" for name, text in texts)


def split(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the lines of each of many texts, with its name."""
    for part in text.split(MARK)[1:]:
        name, *lines = part.splitlines()
        yield name, lines


def _path(name: str) -> Path:
    return SCENARIOS / f"{name}.txt"
