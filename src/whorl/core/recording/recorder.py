"""The recorder: what writes a recording of a process's loops while they run."""

from __future__ import annotations

import struct
import time
from typing import Any, NamedTuple

from whorl.core.recording import layout


class TaskTimes(NamedTuple):
    """The times of a task. Durations are nanoseconds: busy, scheduled and idle together are its life."""

    number: int
    steps: int
    busy_ns: int
    scheduled_ns: int
    idle_ns: int
    longest_ns: int
    wakes: int
    self_wakes: int
    made_ns: int


class Recorder:
    """Writes a recording: one for a process."""

    def __init__(self, memory: Any, *, shortest_ns: int = layout.SHORTEST_RECORDED_NS) -> None:
        """Write into a buffer that `layout.lay_out` has laid out."""
        self._view = memoryview(memory).cast("B")
        regions = layout.REGIONS.unpack_from(self._view, layout.REGIONS_AT)
        self._loops_at, _, self._slots = regions[:3]
        self._names_at, _, self._names_size = regions[3:6]
        self._stalls_at, _, self._stalls = regions[6:9]
        self._ring_at, _, self._events = regions[9:12]
        self.shortest_ns = shortest_ns
        self._names: dict[str, int] = {}
        self._open: list[Any] = [None] * self._slots
        self._loops = 0
        self._last_name = self._append_name("…".encode())

    def _word(self, at: int) -> int:
        return int(struct.unpack_from("<q", self._view, at)[0])

    def _set_word(self, at: int, number: int) -> None:
        struct.pack_into("<q", self._view, at, number)

    def open_loop(self, loop: Any) -> LoopRecorder | None:
        """Return what records a loop, None if all slots are in use."""
        for slot in range(self._slots):
            if self._open[slot] is None:
                self._loops += 1
                opened = self._open[slot] = LoopRecorder(self, slot, self._loops)
                return opened
        return None

    def name_id(self, text: str) -> int:
        """Return the id of a name."""
        number = self._names.get(text)
        if number is None:
            number = self._names[text] = self._append_name(text.encode("utf-8", "replace"))
        return number

    def _append_name(self, name: bytes) -> int:
        name = name[: layout.LONGEST_NAME].decode("utf-8", "ignore").encode()
        used = self._word(layout.NAMES_USED_AT)
        if used + 2 + len(name) > self._names_size:
            return self._last_name
        at = self._names_at + used
        self._view[at : at + 2 + len(name)] = len(name).to_bytes(2, "little") + name
        self._set_word(layout.NAMES_USED_AT, used + 2 + len(name))
        return used

    def note(
        self,
        kind: int,
        *,
        at_ns: int | None = None,
        took_ns: int = 0,
        subject: int = 0,
        flags: int = 0,
        loop: int = 0,
    ) -> None:
        """Write an event; any thread may call this."""
        written = self._word(layout.EVENTS_WRITTEN_AT)
        at = self._ring_at + written % self._events * layout.EVENT.size
        took = min(took_ns // layout.TOOK_UNIT_NS, layout.LONGEST_TOOK)
        began = time.monotonic_ns() - took_ns if at_ns is None else at_ns
        layout.EVENT.pack_into(self._view, at, began, took, kind, flags, loop & 0xFFFF, subject)
        self._set_word(layout.EVENTS_WRITTEN_AT, written + 1)

    def write_stall(self, number: int, data: bytes) -> None:
        """Write a stall, as JSON. Raises ValueError if it is too long."""
        if len(data) > layout.STALL_SIZE - 4:
            raise ValueError(f"a stall has at most {layout.STALL_SIZE - 4} bytes, not {len(data)}")
        at = self._stalls_at + number % self._stalls * layout.STALL_SIZE
        self._view[at : at + 4] = bytes(4)
        self._view[at + 4 : at + 4 + len(data)] = data
        self._view[at : at + 4] = len(data).to_bytes(4, "little")
        self._set_word(layout.STALLS_WRITTEN_AT, self._word(layout.STALLS_WRITTEN_AT) + 1)

    def alive(self, now_ns: int) -> None:
        """Note a sign of life of the watchdog."""
        self._set_word(layout.ALIVE_AT, now_ns)

    def finish(self) -> None:
        """Note that the recording ends here."""
        self._set_word(layout.STATE_AT, layout.FINISHED)

    def abandon(self) -> None:
        """Write no more, and let go of the memory: for a forked child, whose memory is its parent's."""


class LoopRecorder:
    """Records a loop."""

    def __init__(self, recorder: Recorder, slot: int, number: int) -> None:
        self._recorder = recorder
        self._slot = slot
        self.number = number
        at = recorder._loops_at + slot * layout.LOOP_SIZE
        recorder._view[at : at + layout.LOOP_SIZE] = bytes(layout.LOOP_SIZE)
        recorder._set_word(at + 8, number)
        recorder._set_word(at, 1)

    def close(self) -> None:
        """End it."""
        if self._recorder._open[self._slot] is self:
            self._recorder._open[self._slot] = None
            self._recorder._set_word(self._recorder._loops_at + self._slot * layout.LOOP_SIZE, 2)

    def times_of(self, task: Any) -> TaskTimes | None:
        """Return the times of a task, None if it is not known."""
        return None

    def ended_tasks(self) -> list[Any]:
        """Return the tasks that have ended, by the names of their coroutines."""
        return []
