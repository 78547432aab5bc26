"""Recordings that tests write by themselves, event by event."""

from __future__ import annotations

import json
import struct
from typing import Any

from whorl.core.recording import layout
from whorl.core.states import PLACES
from whorl.inspector.recordings.recording import COUNTERS, Recording

MS = 1_000_000
UGLY = '"\x1b]0;x\x07<script>'


class Made:
    """The memory of a recording, and methods that add to it."""

    def __init__(self, events: int = 1024, **header: Any) -> None:
        self.memory = bytearray(layout.offsets(events)[-1])
        self._events = events
        about = {"pid": 7, "started": 9, "boot": b"b", "whorl": "0.1", "python": "3.13.0"}
        about |= {"clock_ns": 1_700_000_000 * 10**9, "command": b"python\0service.py"}
        layout.lay_out(memoryview(self.memory), events, **about | header)
        self._written = 0
        self._names: dict[str, int] = {}
        self._stalls = 0

    def _set(self, at: int, number: int) -> None:
        struct.pack_into("<q", self.memory, at, number)

    def name(self, text: str) -> int:
        """Return the id of a name."""
        if text not in self._names:
            (used,) = struct.unpack_from("<q", self.memory, layout.NAMES_USED_AT)
            data, at = text.encode(), layout.offsets(self._events)[1] + used
            self.memory[at : at + 2 + len(data)] = len(data).to_bytes(2, "little") + data
            self._set(layout.NAMES_USED_AT, used + 2 + len(data))
            self._names[text] = used
        return self._names[text]

    def event(
        self,
        kind: int,
        at_ns: int,
        took_ns: int = 0,
        *,
        name: str | int = 0,
        number: int = 0,
        flags: int = 0,
        loop: int = 1,
    ) -> Made:
        """Write an event; `name` is a name, or the upper half of the subject."""
        upper = self.name(name) if isinstance(name, str) else name
        at = layout.offsets(self._events)[3] + self._written % self._events * layout.EVENT.size
        took = min(took_ns // layout.TOOK_UNIT_NS, layout.LONGEST_TOOK)
        layout.EVENT.pack_into(self.memory, at, at_ns, took, kind, flags, loop, upper << 32 | number)
        self._written += 1
        self._set(layout.EVENTS_WRITTEN_AT, self._written)
        return self

    def task(self, at_ns: int, number: int, name: str = "") -> Made:
        """Write that a task was made; one without a name is `Task-N`."""
        took = 0 if name else number * layout.TOOK_UNIT_NS
        return self.event(layout.TASK_MADE, at_ns, took, name=name or 0, number=number)

    def stall(self, began_ns: int, length_ns: int, /, **more: Any) -> Made:
        """Write a stall and its event."""
        self._stalls += 1
        frames = [["/srv/service.py", 9, "handle_order", "time.sleep(0.3)"]]
        plain = {
            "number": self._stalls,
            "began_ns": began_ns,
            "length_ns": length_ns,
            "ended": True,
            "running_ns": 0,
            "starved_ns": 0,
            "asleep_ns": length_ns,
            "gc_ns": 0,
            "gil_held": False,
            "call": "handle_order",
            "task": "order 4711",
            "reason": "asleep",
            "syscall": "clock_nanosleep",
            "file": None,
            "stacks": [{"after_ns": 50 * MS, "frames": frames, "late": False}],
        } | more
        data = json.dumps(plain).encode()
        at = layout.offsets(self._events)[2] + (self._stalls - 1) % layout.STALLS * layout.STALL_SIZE
        self.memory[at : at + 4 + len(data)] = len(data).to_bytes(4, "little") + data
        return self.event(layout.STALLED, began_ns, length_ns, number=self._stalls)

    def loop(self, number: int = 1, *, counters: dict[str, int] | None = None, **fields: int) -> Made:
        """Write the slot of a loop."""
        at = layout.HEADER_SIZE + (number - 1) * layout.LOOP_SIZE
        for name, value in ({"state": 1, "number": number} | fields).items():
            self._set(at + 8 * layout.LOOP_FIELDS.index(name), value)
        for name, value in (counters or {}).items():
            self._set(at + layout.FIGURES_AT + 8 * COUNTERS.index(name), value)
        return self

    def histogram(self, kind: int, counts: dict[int, int], most: int, *, loop: int = 1) -> Made:
        """Write a histogram: how many are in each bucket, and the greatest."""
        at = layout.HEADER_SIZE + (loop - 1) * layout.LOOP_SIZE + layout.FIGURES_AT + 8 * len(COUNTERS)
        at += kind * 8 * (2 + PLACES)
        self._set(at + 8, most)
        for place, count in counts.items():
            self._set(at + 8 * (2 + place), count)
        return self

    def data(self) -> bytes:
        """Return the bytes of the file."""
        return bytes(self.memory)

    def recording(self) -> Recording:
        """Return it as a reader has it."""
        return Recording(self.data())


def served(*, requests: int = 40) -> Made:
    """Return the recording of a server: a turn, a step and a task for each request, of which some block."""
    made = Made(4096).loop(
        turns=requests,
        callbacks=3 * requests,
        ran_ns=requests * 10 * MS,
        tasks_made=requests,
        tasks_done=requests - 1,
        idle_ns=requests * 7 * MS,
        counters={"bytes_in": 4000, "bytes_out": 900_000, "accepts": 3, "connections_opened": 3},
    )
    made.event(layout.HANDLE_OPENED, MS, name="TcpTransport", number=9)
    at = MS
    for number in range(requests):
        task, blocks = number + 1, number % 16 == 15
        took = 400 * MS if blocks else (1 + number % 3) * MS // 2
        name = "handle_order" if blocks else "handle"
        made.event(layout.POLL, at, 5 * MS, number=1)
        made.task(at + 5 * MS + 100, task, "order 4711" if blocks else "")
        made.event(layout.WAKE, at + 5 * MS + 200, number=task)
        made.event(layout.CALLBACK, at + 5 * MS + 64, MS // 5, name="TcpTransport", number=9, flags=layout.IO)
        made.event(layout.STEP, at + 6 * MS, took, name=name, number=task)
        if number != requests - 1:
            made.event(layout.TASK_DONE, at + 6 * MS + took, name=name, number=task)
        if blocks:
            made.stall(at + 6 * MS, took)
        made.event(layout.TURN, at, 2 * MS + took, number=2)
        at += 7 * MS + took
        for kind, value in ((layout.READY, number % 5), (layout.BYTES_IN, 100 * number)):
            made.event(kind, at, number=value)
        made.event(layout.UTILIZATION, at, number=300 + number)
    return made.loop(updated_ns=at)
