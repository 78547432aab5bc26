"""Traces: what the hosts of a run asked of their kernels, as JSON lines; and where two traces part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from whorl.sim.files.packets import Packet
from whorl.sim.running.explain import in_words
from whorl.sim.running.result import Result

FORMAT = 1

Line = dict[str, Any]


class Trace(NamedTuple):
    """The content of a trace's file."""

    head: Line
    calls: list[Line]  #: what the hosts asked of their kernels
    packets: list[Line]  #: what the network carried
    story: list[str]


def write_trace(result: Result[Any], path: Path | str) -> None:
    """Write the trace of a run that kept its calls."""
    head = {"whorl-trace": FORMAT, "seed": result.tape.seed, "digest": result.digest, "turns": result.turns}
    head["findings"] = [str(finding) for finding in result.findings]
    head["decisions"] = in_words(result.tape.decisions, result.moments)
    lines: list[Line] = [head, *_calls(result)]
    lines += [_packet(packet) for packet in result.packets]
    lines += [{"story": text} for text in result.story]
    Path(path).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def _calls(result: Result[Any]) -> Iterator[Line]:
    for (time, host, call, *details), task in zip(result.calls or [], result.tasks, strict=True):
        yield {
            "ns": time,
            "host": host,
            "call": call,
            "details": [_plain(each) for each in details],
            "task": task,
        }


def _packet(packet: Packet) -> Line:
    return {
        "packet": packet.kind,
        "ns": packet.sent,
        "due": packet.due,
        "lost": packet.is_lost,
        "from": packet.source,
        "to": packet.target,
        "names": [_shown(name) for name in packet.names],
        "descriptors": list(packet.descriptors),
        "size": packet.size,
        "task": packet.task,
    }


def _shown(name: Any) -> str:
    """Return a socket's name as text: "10.0.0.1:80"; empty if it is not known."""
    if not isinstance(name, tuple):
        return str(name or "")
    return f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"


def _plain(value: Any) -> Any:
    return value if isinstance(value, (int, str, float, type(None))) else repr(value)


def read_trace(path: Path | str) -> Trace:
    """Return what a trace's file has. Raises ValueError for a file that is none."""
    try:
        head, *lines = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
        if head["whorl-trace"] != FORMAT:
            raise ValueError(f"{path} is a trace of another version")
        return Trace(
            head,
            [line for line in lines if "call" in line],
            [line for line in lines if "packet" in line],
            [line["story"] for line in lines if "story" in line],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no trace: {error}") from error


def is_about(line: Line, host: str | None, task: str | None, fd: int | None, since_s: float) -> bool:
    """Return whether a call is of a host and a task, is about a descriptor, and comes at or after a time."""
    details = line["details"]
    return (
        (host is None or line["host"] == host)
        and (task is None or line["task"] == task)
        and (fd is None or fd in details[:2] or any(f"({fd}, " in str(each) for each in details))
        and line["ns"] >= since_s * 1e9
    )


def carries(line: Line, host: str | None, task: str | None, fd: int | None, since_s: float) -> bool:
    """Return whether a packet is of a host, a task and a descriptor, and is sent at or after a time."""
    return (
        (host is None or host in (line["from"], line["to"]))
        and (task is None or line["task"] == task)
        and (fd is None or fd in line["descriptors"])
        and line["ns"] >= since_s * 1e9
    )


def as_text(line: Line | None) -> str:
    """Return a call as people read it."""
    if line is None:
        return "the run was over"
    task = f"  [{line['task']}]" if line["task"] else ""
    text = f"{line['call']}({', '.join(map(str, line['details']))})"
    text = text if len(text) <= 200 else f"{text[:197]}..."
    return f"{line['ns'] / 1e6:14.6f} ms  {line['host']}  {text}{task}"


def parting(first: list[Line], second: list[Line]) -> tuple[int, Line | None, Line | None] | None:
    """Return where two traces part: the number of the call, and both calls; None if they are the same."""
    for number, (one, other) in enumerate(zip_longest(first, second)):
        if one != other:
            return number, one, other
    return None
