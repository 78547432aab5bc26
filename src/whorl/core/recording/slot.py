"""A loop's slot in a recording: its numbers, its figures, its events, and its clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whorl.core.kernel.kernel import Kernel
from whorl.core.recording import layout
from whorl.core.recording.recorder import Recorder

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from whorl.core.figures import Figures

if not cython.compiled:
    from whorl.core.figures import copy_figures, move_into

OPEN = 1
#: Shorter callbacks are timed by the processor's ticks. In so short a time, a wrong factor does no harm.
LONGEST_BY_TICKS = 1_000_000
#: The length of a tick is counted in parts of a nanosecond, so many of which are one.
TICK_PARTS = 1 << 24

if not cython.compiled:

    def time_of(recorder: LoopSlot) -> int:
        """Return the time, by ticks of the processor where they may be used; uncompiled, by the clock."""
        return recorder._kernel.now()

    def tell_call(opened: LoopSlot, began: int, name: int, task: int) -> None:
        """Write which call runs."""
        fields = opened._fields
        fields[layout.CALL_BEGAN], fields[layout.CALL_NAME], fields[layout.CALL_TASK] = began, name, task

    def tell_no_call(opened: LoopSlot) -> None:
        """Write that no call runs."""
        opened._fields[layout.CALL_BEGAN] = 0

    def read_ticks() -> int:
        """Return the processor's ticks; uncompiled, they are not used."""
        return 0

    def begin_fields(opened: LoopSlot) -> None:
        """Find the fields of a slot."""
        at = opened._slot_at
        opened._fields = opened._recorder._view[at : at + 8 * layout.FIELDS].cast("q")

    def end_fields(opened: LoopSlot) -> None:
        """Let the fields be in memory of the recorder's own."""
        opened._fields = [0] * layout.FIELDS

    def move_figures(opened: LoopSlot) -> None:
        """Move the figures of the loop into its slot."""
        at = opened._slot_at + layout.FIGURES_AT
        move_into(opened._figures, opened._recorder._view[at : opened._slot_at + layout.LOOP_SIZE])

    def refresh_figures(opened: LoopSlot) -> None:
        """Copy the figures into the slot. Compiled, they lie there; uncompiled, now and then must do."""
        if opened._is_open:
            copy_figures(opened._figures)


class LoopSlot:
    """The part of a loop's recorder that has its place in the memory."""

    def __init__(self, recorder: Recorder, loop: Any, slot: int, number: int) -> None:
        if getattr(self, "number", 0):
            raise RuntimeError("the recorder is initialized already")
        self._is_open = False
        self._recorder = recorder
        self._slot = slot
        self._slot_at = self._recorder._loops_at + slot * layout.LOOP_SIZE
        self.number: int = number
        self._kernel: Kernel = loop._kernel
        self._figures: Figures = loop._figures
        self._shortest_ns = recorder.shortest_ns
        if not cython.compiled:
            self._own_fields: Any = None
            self._call: Any = None
        self._fields: Any
        end_fields(self)
        # The clock. The times of a simulated world, and of tests that replace it, are the kernel's own.
        self._has_ticks = cython.compiled and type(self._kernel) is Kernel
        self._tick_parts = 0  # how long a tick is, in TICK_PARTS of a nanosecond, once that was measured
        self._most_ticks = 0  # so many of them may be used as a time
        if self._has_ticks:
            self._tick_parts, self._most_ticks = self._recorder._tick_parts, self._recorder._most_ticks
        self._base_ns = self._base_ticks = 0  # a time, and the ticks then
        self._measured_ns = self._measured_ticks = 0  # the same, for measuring

    def _open_slot(self, loop: Any) -> None:
        """Let the numbers and the figures of the loop lie in the slot from now on."""
        self._recorder._view[self._slot_at : self._slot_at + layout.LOOP_SIZE] = bytes(layout.LOOP_SIZE)
        begin_fields(self)
        self._fields[layout.NUMBER] = self.number
        loop._fold_alone()
        move_figures(self)
        self._is_open = True
        self._fields[layout.STATE] = OPEN

    def _put(self, at: int, took: int, kind: int, flags: int, high: int, low: int) -> None:
        """Write an event; `took` is in the units of events."""
        if self._is_open:
            self._recorder._put(at, took, kind, flags, self.number, (high << 32) | low)

    def _read_clock(self) -> int:
        """Return the time by the clock, and count ticks from now on."""
        self._base_ticks = read_ticks()
        self._base_ns = self._kernel.now()
        return self._base_ns

    def _measure_ticks(self, now: int) -> None:
        """Measure how long a tick is, from the last time on, which was long enough ago."""
        ticks = read_ticks()
        if self._measured_ns and ticks > self._measured_ticks:
            tick_ns = (now - self._measured_ns) / (ticks - self._measured_ticks)
            self._tick_parts = int(TICK_PARTS * tick_ns)
            self._most_ticks = int(LONGEST_BY_TICKS / tick_ns) if self._tick_parts > 0 else 0
            self._recorder._tick_parts, self._recorder._most_ticks = self._tick_parts, self._most_ticks
        self._measured_ns, self._measured_ticks = now, ticks
