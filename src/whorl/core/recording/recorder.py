"""The recorder of a process: writes names, events and stalls into the memory of a recording.

Without the GIL, a lock guards the ring and the names. While the figures of a loop move, what other threads
add may be lost. Their memory stays, since a loop keeps its former recorders.
"""

from __future__ import annotations

from typing import Any, Final

from whorl.core.kernel.kernel import Kernel
from whorl.core.recording import layout

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

EVENT_WORDS = layout.EVENT.size // 8
WRITTEN = layout.EVENTS_WRITTEN_AT // 8
REST: Final = "…"

if not cython.compiled:

    def begin_memory(recorder: Recorder) -> None:
        """Find the memory of a recording."""
        recorder._words = recorder._view.cast("q")

    def put_sign(recorder: Recorder, index: int, number: int) -> None:
        """Write the sign of life."""
        recorder._words[index] = number

    def put_event(
        recorder: Recorder, at: int, took: int, kind: int, flags: int, loop: int, subject: int
    ) -> None:
        """Write an event at the ring's next place."""
        view = recorder._view  # Another thread may abandon the recording between two steps of this.
        if view is None:
            return
        place = recorder._ring_at + recorder._place * layout.EVENT.size
        layout.EVENT.pack_into(view, place, at, took, kind, flags, loop & 0xFFFF, subject)
        recorder._words[WRITTEN] += 1
        recorder._place = (recorder._place + 1) % recorder._event_count

    def begin_writing(recorder: Recorder) -> None:
        """Keep other threads from writing, where the GIL does not; uncompiled, names may be written twice."""

    def end_writing(recorder: Recorder) -> None:
        """Let other threads write again."""


class Recorder:
    """Writes a recording; a process has one."""

    def __init__(self, memory: Any, *, shortest_ns: int = layout.SHORTEST_RECORDED_NS) -> None:
        """Write into a buffer that `layout.lay_out` has laid out. Raises ValueError for another one.

        Callbacks, steps, sleeps and turns that are shorter than `shortest_ns` have no events; 0: all have.
        """
        if cython.compiled and self._name_ids is not None:
            raise RuntimeError("the recorder is initialized already")
        self._view: Any = memoryview(memory).cast("B")
        if self._view.readonly or len(self._view) < layout.HEADER_SIZE:
            raise ValueError("a recording needs memory that can be written and has been laid out")
        regions = layout.REGIONS.unpack_from(self._view, layout.REGIONS_AT)
        offsets = layout.offsets(regions[11])
        if bytes(self._view[:8]) != layout.MAGIC or offsets[4] != len(self._view) or regions[11] < 1:
            raise ValueError("the memory has not been laid out for a recording")
        self._loops_at, self._names_at, self._stalls_at, self._ring_at = offsets[:4]
        self._names_size = layout.NAMES_SIZE
        self._stall_count = layout.STALLS
        self._event_count = regions[11]
        self.shortest_ns: int = shortest_ns
        self._words: Any
        begin_memory(self)
        self._place = self._words[WRITTEN] % self._event_count
        self._name_ids: dict[str, int] = {}
        self._kernel = Kernel()
        self._open: list[Any] = [None] * layout.LOOPS  # weak references to those who use the slots
        self._loops_opened = 0
        self._tick_parts = 0  # what loops have measured last, for those that begin: as in `LoopSlot`
        self._most_ticks = 0
        self._last_name = 0
        self._last_name = self.name_id(REST)

    def _check(self) -> None:
        if self._view is None:
            raise ValueError("the recording was abandoned")

    def name_id(self, text: str) -> int:
        """Return the id of a name; that of "…" if there is no room for another one."""
        self._check()
        begin_writing(self)
        try:
            found = self._name_ids.get(text)
            if found is not None:
                return found
            name = text.encode("utf-8", "replace")[: layout.LONGEST_NAME]
            return self._write_name(text, name.decode("utf-8", "ignore").encode())
        finally:
            end_writing(self)

    def _write_name(self, text: str, name: bytes) -> int:
        """Write a name behind the others; return its id."""
        used = int.from_bytes(self._view[layout.NAMES_USED_AT : layout.NAMES_USED_AT + 8], "little")
        end = used + 2 + len(name)
        if end > self._names_size:
            return self._last_name
        at = self._names_at + used
        self._view[at : at + 2 + len(name)] = len(name).to_bytes(2, "little") + name
        self._view[layout.NAMES_USED_AT : layout.NAMES_USED_AT + 8] = end.to_bytes(8, "little")
        self._name_ids[text] = used
        return used

    def _name_text(self, number: int) -> str:
        """Return the name that has an id."""
        begin_writing(self)
        try:
            names = list(self._name_ids.items())
        finally:
            end_writing(self)
        for text, known in names:
            if known == number:
                return text
        return REST

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
        """Write an event. Any thread may call this. Without `at_ns` it has just ended."""
        self._check()
        if not 0 <= subject < 1 << 63 or not 0 < kind < 256 or not 0 <= flags < 256:
            raise ValueError("an event's subject, kind or flags do not fit")
        began = self._kernel.now() - took_ns if at_ns is None else at_ns
        self._put(began, units(took_ns), kind, flags, loop, subject)

    def _put(self, at: int, took: int, kind: int, flags: int, loop: int, subject: int) -> None:
        if self._view is not None:
            put_event(self, at, took, kind, flags, loop, subject)

    def write_stall(self, number: int, data: bytes) -> None:
        """Write a stall as JSON, in the place that its number has. Raises ValueError if it is too long.

        Stalls are numbered from 1. One is written again when more is known of it.
        """
        self._check()
        size = len(data)
        if size > layout.STALL_SIZE - 4:
            raise ValueError(f"a stall has at most {layout.STALL_SIZE - 4} bytes, not {size}")
        at = self._stalls_at + number % self._stall_count * layout.STALL_SIZE
        # A reader leaves out a stall of no length, and one whose text is not JSON.
        self._view[at : at + 4] = bytes(4)
        self._view[at + 4 : at + 4 + size] = data
        self._view[at : at + 4] = size.to_bytes(4, "little")
        written = layout.STALLS_WRITTEN_AT // 8
        self._words[written] = max(self._words[written], number)

    def alive(self, now_ns: int, starved: int = 0) -> None:
        """Note a sign of life of the watchdog, and how many starved callbacks it has seen."""
        self._check()
        put_sign(self, layout.ALIVE_AT // 8, now_ns)
        self._words[layout.STARVED_AT // 8] = starved

    def is_written(self) -> bool:
        """Return whether a loop may write into the memory; any thread may call this."""
        for former in list(self._open):
            if former is not None and former() is not None:
                return True
        return False

    def finish(self) -> None:
        """Note that the recording ends here. Loops that are still recorded go on."""
        self._check()
        self._words[layout.STATE_AT // 8] = layout.FINISHED

    def abandon(self) -> None:
        """Let all loops end their recording, and let go of the memory without writing to it.

        A forked child calls this, whose memory is also its parent's.
        """
        for former in self._open:
            opened: Any = None if former is None else former()
            if opened is not None:
                opened._leave_slot()
        self._view = None


def units(took: int) -> int:
    """Return a duration in the units of events."""
    return min(max(0, took) // layout.TOOK_UNIT_NS, layout.LONGEST_TOOK)
