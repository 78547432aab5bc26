"""Recordings that are made by hand: a loop with any numbers, events and stalls."""

from __future__ import annotations

import json
import os
import struct
import time
from pathlib import Path
from typing import Any

from whorl.core.recording import layout
from whorl.core.states import KINDS, PLACES
from whorl.inspector.asking import directory
from whorl.inspector.recordings.recording import COUNTERS

EVENTS = 64
_, NAMES, STALLS, RING, SIZE = layout.offsets(EVENTS)
MS = 1_000_000
S = 1_000_000_000


class Made:
    """The memory of a recording."""

    def __init__(
        self, pid: int = 7, started: int = 9, command: bytes = b"python\0app.py", **header: Any
    ) -> None:
        self.memory = bytearray(SIZE)
        self.pid, self.started = pid, started
        header.setdefault("clock_ns", time.time_ns() - time.monotonic_ns())
        layout.lay_out(
            memoryview(self.memory),
            EVENTS,
            pid=pid,
            started=started,
            python="3.13.0",
            command=command,
            **header,
        )
        self._events = self._stalls = 0
        self._loops: list[dict[str, int]] = []

    def word(self, at: int, number: int) -> None:
        struct.pack_into("<q", self.memory, at, number)

    def name(self, text: str) -> int:
        """Add a name; return its id."""
        used = struct.unpack_from("<q", self.memory, layout.NAMES_USED_AT)[0]
        data = text.encode()[: layout.LONGEST_NAME]
        at = NAMES + used
        self.memory[at : at + 2 + len(data)] = len(data).to_bytes(2, "little") + data
        self.word(layout.NAMES_USED_AT, used + 2 + len(data))
        return int(used)

    def loop(self, place: int = 0, **numbers: int) -> None:
        """Write numbers of a loop: fields and counters."""
        at = layout.HEADER_SIZE + place * layout.LOOP_SIZE
        while len(self._loops) <= place:
            self._loops.append({"state": 1, "number": len(self._loops) + 1})
        fields = self._loops[place]
        fields.update(numbers)
        for offset, field in enumerate(layout.LOOP_FIELDS):
            self.word(at + 8 * offset, fields.get(field, 0))
        for offset, counter in enumerate(COUNTERS):
            self.word(at + layout.FIGURES_AT + 8 * offset, fields.get(counter, 0))
        assert set(fields) <= {*layout.LOOP_FIELDS, *COUNTERS}

    def times(self, kind: int, *buckets: tuple[int, int], place: int = 0) -> None:
        """Write a histogram: for each bucket its place, and how many are in it."""
        assert kind < KINDS
        at = layout.HEADER_SIZE + place * layout.LOOP_SIZE + layout.FIGURES_AT
        at += 8 * len(COUNTERS) + kind * 8 * (2 + PLACES)
        total = sum(upper_bound(bucket) * count for bucket, count in buckets)
        self.word(at, total)
        self.word(at + 8, max(upper_bound(bucket) for bucket, _ in buckets))
        for bucket, count in buckets:
            self.word(at + 16 + 8 * bucket, count)

    def event(self, at_ns: int, took_ns: int, kind: int, subject: int, flags: int = 0, loop: int = 1) -> None:
        at = RING + self._events % EVENTS * layout.EVENT.size
        took = took_ns // layout.TOOK_UNIT_NS
        layout.EVENT.pack_into(self.memory, at, at_ns, took, kind, flags, loop, subject)
        self._events += 1
        self.word(layout.EVENTS_WRITTEN_AT, self._events)

    def stall(self, **fields: Any) -> None:
        at = STALLS + self._stalls % layout.STALLS * layout.STALL_SIZE
        self._stalls += 1
        data = json.dumps({"number": self._stalls, **fields}).encode()
        self.memory[at : at + 4 + len(data)] = len(data).to_bytes(4, "little") + data
        self.word(layout.STALLS_WRITTEN_AT, self._stalls)

    def write(self, folder: Path) -> Path:
        """Write the file, as the process has it."""
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / f"{self.pid}-{self.started}.recording"
        path.write_bytes(self.memory)
        return path


def upper_bound(bucket: int) -> int:
    """Return the greatest number of a bucket."""
    from whorl.core.metrics import _upper_bound

    return _upper_bound(bucket)


def of_this_process(**header: Any) -> Made:
    """Return a recording that belongs to this process."""
    return Made(os.getpid(), directory.start_time("self") or 0, **header)


def busy_server(made: Made, now_ns: int) -> Made:
    """Fill a recording as that of a server that has been stuck for 3.2 seconds."""
    made.word(layout.STARVED_AT, 5)
    step, task, other = (
        made.name("handle_order"),
        made.name("order 4711"),
        made.name("StreamReaderProtocol.x"),
    )
    made.loop(
        updated_ns=now_ns - 3200 * MS,
        turns=1_000_000,
        events=2_500_000,
        callbacks=4_000_000,
        run_began_ns=now_ns - 200 * S,
        idle_ns=150 * S,
        ready=3,
        timers=120,
        handles=43,
        call_began_ns=now_ns - 3200 * MS,
        call_name=step,
        call_task=17,
        tasks_made=2004,
        tasks_done=1000,
        bytes_in=9_000_000_000,
        bytes_out=100_000,
        connections_opened=41,
        connections_closed=1,
        jobs_submitted=4,
        jobs_begun=2,
        errors_reported=2,
    )
    made.times(0, (100, 10000), (250, 200), (400, 1))
    made.times(1, (120, 10000), (300, 3))
    made.times(4, (90, 10000), (250, 20))
    made.event(now_ns - 4 * S, 0, layout.TASK_MADE, task << 32 | 17)
    made.event(now_ns - 4 * S, 250 * MS, layout.STEP, step << 32 | 17)
    made.event(now_ns - 3 * S, 12 * MS, layout.STEP, step << 32 | 17)
    made.event(now_ns - 2 * S, 2 * MS, layout.CALLBACK, other << 32)
    asleep = {"call": "handle_order", "task": "order 4711 (handle_order)", "reason": "asleep"}
    made.stall(
        began_ns=now_ns - 4 * S,
        length_ns=250 * MS,
        ended=True,
        **asleep,
        syscall="clock_nanosleep",
        file=None,
        text="handle_order in order 4711 (handle_order) blocked the loop for 250 ms: it was blocked in"
        ' clock_nanosleep (running 0 ms)\nStack after 52 ms:\n  File "x.py", line 3, in handle_order',
    )
    made.stall(
        began_ns=now_ns - 3200 * MS,
        length_ns=3200 * MS,
        ended=False,
        **asleep,
        syscall="openat",
        file="/srv/queue",
        text="handle_order in order 4711 (handle_order) has blocked the loop for 3200 ms: it was blocked"
        ' in openat of /srv/queue (running 0 ms)\nStack after 52 ms:\n  File "x.py", line 9',
    )
    return made
