"""Chrome's format of trace events, which Perfetto, Chrome and speedscope open."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

Row = dict[str, Any]


def row(phase: str, name: str, process: int, thread: int, at_ns: float, **more: object) -> Row:
    """Return an event at a time, without the details that are empty."""
    found = {"ph": phase, "name": name, "pid": process, "tid": thread, "ts": at_ns / 1000, **more}
    return {key: value for key, value in found.items() if value not in ({}, None)}


def naming(what: str, process: int, thread: int, **args: object) -> Row:
    """Return the event that tells a name, or another fact, of a process or a thread."""
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": args}


def write(put: Callable[[bytes], object], rows: Iterable[Row], about: Row) -> int:
    """Write the events, a thousand at a time, and the facts about the whole; return how many there were."""
    put(f'{{"displayTimeUnit":"ns","otherData":{json.dumps(about)},"traceEvents":[\n'.encode())
    count, lines = 0, []
    for one in rows:
        lines.append(json.dumps(one, separators=(",", ":")))
        if len(lines) == 1000:
            put(((",\n" if count else "") + ",\n".join(lines)).encode())
            count, lines = count + len(lines), []
    put(((",\n" if count and lines else "") + ",\n".join(lines) + "\n]}\n").encode())
    return count + len(lines)
