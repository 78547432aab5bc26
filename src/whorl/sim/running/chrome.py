"""A trace for Perfetto, Chrome and speedscope: one process for each host, one row for each task.

Source: the Trace Event Format of Chrome. Times are virtual, in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from whorl.sim.running.trace import Line

#: The row of a host for calls that no task made: those of the loop itself and of callbacks.
LOOP_ROW = "the loop"

_ROWS_OF_A_HOST = 100_000  # the numbers of rows must differ between hosts: some viewers ask for that


def chrome_trace(head: Line, calls: list[Line]) -> dict[str, Any]:
    """Return a trace as the object that viewers read, for `json.dump`."""
    return {
        "traceEvents": list(_events(calls)),
        "displayTimeUnit": "ns",
        "otherData": {"seed": head["seed"], "digest": head["digest"], "findings": head["findings"]},
    }


def _events(calls: list[Line]) -> Iterator[dict[str, Any]]:
    hosts: dict[str, int] = {}
    rows: dict[tuple[str, str], int] = {}
    for call in calls:
        host, task = call["host"], call["task"] or LOOP_ROW
        if host not in hosts:
            hosts[host] = len(hosts) + 1
            yield _named("process_name", hosts[host], 0, f"host {host}")
        if (host, task) not in rows:
            rows[host, task] = hosts[host] * _ROWS_OF_A_HOST + len(rows)
            yield _named("thread_name", hosts[host], rows[host, task], task)
        yield {
            "ph": "i",
            "s": "t",
            "name": call["call"],
            "ts": call["ns"] / 1000,
            "pid": hosts[host],
            "tid": rows[host, task],
            "args": {"details": [str(each)[:200] for each in call["details"]]},
        }


def _named(kind: str, host: int, row: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": host, "tid": row, "args": {"name": name}}
