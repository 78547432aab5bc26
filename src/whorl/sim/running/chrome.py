"""A trace for Perfetto, Chrome and speedscope: hosts are processes, tasks are rows, packets are arrows.

Times are virtual.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from whorl.formats import trace_events
from whorl.formats.trace_events import Row, naming, row
from whorl.sim.running.trace import Line

#: The row of a host for calls that no task made: those of the loop itself and of callbacks.
LOOP_ROW = "the loop"

#: The row of a host for packets that arrive, and for those that its system sends by itself.
NETWORK_ROW = "the network"

_ROWS_OF_A_HOST = 100_000  # the numbers of rows must differ between hosts: some viewers ask for that

_INSTANT_US = 0.001  # An arrow needs a slice at each end, and a slice must take some time.


def write(path: Path, head: Line, calls: Sequence[Line], packets: Sequence[Line] = ()) -> None:
    """Write a trace to a file."""
    about = {name: head[name] for name in ("seed", "digest", "findings")}
    with path.open("wb") as file:
        trace_events.write(file.write, _Trace().rows(calls, packets), about)


class _Trace:
    """The events of a trace. Hosts and their rows are numbered and named where they first come."""

    def __init__(self) -> None:
        self._hosts: dict[str, int] = {}
        self._rows: dict[tuple[str, str], int] = {}

    def rows(self, calls: Sequence[Line], packets: Sequence[Line]) -> Iterator[Row]:
        """Yield all events."""
        for call in calls:
            place = yield from self._place(call["host"], call["task"] or LOOP_ROW)
            args = {"details": [str(each)[:200] for each in call["details"]]}
            yield row("i", call["call"], *place, call["ns"], s="t", args=args)
        for number, packet in enumerate(packets):
            yield from self._packet(number, packet)

    def _place(self, host: str, name: str) -> Generator[Row, None, tuple[int, int]]:
        """Return the numbers of a host and of a row of it; yield the events that name new ones."""
        process = self._hosts.get(host)
        if process is None:
            process = self._hosts[host] = len(self._hosts) + 1
            yield naming("process_name", process, 0, name=f"host {host}")
        thread = self._rows.get((host, name))
        if thread is None:
            thread = self._rows[host, name] = process * _ROWS_OF_A_HOST + len(self._rows)
            yield naming("thread_name", process, thread, name=name)
        return process, thread

    def _packet(self, number: int, packet: Line) -> Iterator[Row]:
        """Yield the sending and the arrival of a packet, with an arrow between them; a lost one has none."""
        name = f"{packet['packet']} {packet['size']}" if packet["size"] else packet["packet"]
        ends = map(_end, packet["names"], packet["descriptors"])
        args = {**dict(zip(("from", "to"), ends, strict=True)), "bytes": packet["size"]}
        slices: Row = {"cat": "packet", "dur": _INSTANT_US, "args": args}
        arrow: Row = {"cat": "packet", "id": number}
        sent = yield from self._place(packet["from"], packet["task"] or NETWORK_ROW)
        how = "lost" if packet["lost"] else "sent"
        yield row("X", f"{name}, {how}", *sent, packet["ns"], **slices)
        if not packet["lost"]:
            arrived = yield from self._place(packet["to"], NETWORK_ROW)
            yield row("s", name, *sent, packet["ns"], **arrow)
            yield row("X", f"{name}, arrived", *arrived, packet["due"], **slices)
            yield row("f", name, *arrived, packet["due"], bp="e", **arrow)


def _end(name: str, descriptor: int) -> str:
    """Return how people name the end of a connection: by its address, and its descriptor if it has one."""
    return name if descriptor < 0 else f"{name}, descriptor {descriptor}"
