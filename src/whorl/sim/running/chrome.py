"""A trace for Perfetto, Chrome and speedscope: hosts are processes, tasks are rows, packets are arrows.

Source: the Trace Event Format of Chrome. Times are virtual, in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from whorl.sim.running.trace import Line

#: The row of a host for calls that no task made: those of the loop itself and of callbacks.
LOOP_ROW = "the loop"

#: The row of a host for packets that arrive, and for those that its system sends by itself.
NETWORK_ROW = "the network"

_ROWS_OF_A_HOST = 100_000  # the numbers of rows must differ between hosts: some viewers ask for that

_INSTANT_US = 0.001  # An arrow needs a slice at each end, and a slice must take some time.


def chrome_trace(head: Line, calls: Sequence[Line], packets: Sequence[Line] = ()) -> dict[str, Any]:
    """Return a trace as the object that viewers read, for `json.dump`."""
    rows = _Rows()
    events = [_call(rows, call) for call in calls]
    for number, packet in enumerate(packets):
        events += _packet(rows, number, packet)
    return {
        "traceEvents": [*rows.names, *events],
        "displayTimeUnit": "ns",
        "otherData": {"seed": head["seed"], "digest": head["digest"], "findings": head["findings"]},
    }


class _Rows:
    """The numbers of hosts and of their rows, and the events that name them."""

    def __init__(self) -> None:
        self.names: list[dict[str, Any]] = []
        self._hosts: dict[str, int] = {}
        self._rows: dict[tuple[str, str], int] = {}

    def place(self, host: str, row: str) -> dict[str, int]:
        """Return where an event of a row of a host stands."""
        number = self._hosts.get(host)
        if number is None:
            number = self._hosts[host] = len(self._hosts) + 1
            self.names.append(_named("process_name", number, 0, f"host {host}"))
        thread = self._rows.get((host, row))
        if thread is None:
            thread = self._rows[host, row] = number * _ROWS_OF_A_HOST + len(self._rows)
            self.names.append(_named("thread_name", number, thread, row))
        return {"pid": number, "tid": thread}


def _named(kind: str, host: int, row: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": host, "tid": row, "args": {"name": name}}


def _call(rows: _Rows, call: Line) -> dict[str, Any]:
    return {
        "ph": "i",
        "s": "t",
        "name": call["call"],
        "ts": call["ns"] / 1000,
        **rows.place(call["host"], call["task"] or LOOP_ROW),
        "args": {"details": [str(each)[:200] for each in call["details"]]},
    }


def _packet(rows: _Rows, number: int, packet: Line) -> Iterator[dict[str, Any]]:
    """Yield the sending and the arrival of a packet, with an arrow between them; a lost one has none."""
    name = f"{packet['packet']} {packet['size']}" if packet["size"] else packet["packet"]
    args = {
        "from": _end(packet["names"][0], packet["descriptors"][0]),
        "to": _end(packet["names"][1], packet["descriptors"][1]),
        "bytes": packet["size"],
    }
    sent = rows.place(packet["from"], packet["task"] or NETWORK_ROW) | {"ts": packet["ns"] / 1000}
    slices = {"ph": "X", "cat": "packet", "dur": _INSTANT_US, "args": args}
    yield {**slices, **sent, "name": f"{name}, lost" if packet["lost"] else f"{name}, sent"}
    if not packet["lost"]:
        arrived = rows.place(packet["to"], NETWORK_ROW) | {"ts": packet["due"] / 1000}
        arrow = {"cat": "packet", "name": name, "id": number}
        yield {"ph": "s", **arrow, **sent}
        yield {**slices, **arrived, "name": f"{name}, arrived"}
        yield {"ph": "f", "bp": "e", **arrow, **arrived}


def _end(name: str, descriptor: int) -> str:
    """Return how people name the end of a connection: by its address, and its descriptor if it has one."""
    return name if descriptor < 0 else f"{name}, descriptor {descriptor}"
