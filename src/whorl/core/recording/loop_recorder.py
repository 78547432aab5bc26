"""`LoopRecorder`: writes what a loop does into a recording, while it does it.

A loop that is watched has one. It calls that around each callback, each sleep and each turn, and when a step
of a task is queued. So a loop that is not watched pays nothing. Numbers go into the slot of the loop; what
took long goes into the ring of events.

    LoopSlot        its place in the memory
     └ CallbackNames     names of what is called
        └ TaskTable      the records of tasks
           └ LoopTasks      tasks and their steps
              └ LoopRecorder     callbacks, turns, sleeps, timers, handles
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from whorl.core.callback import Callback, Runnable
from whorl.core.kernel.kernel import Kernel
from whorl.core.recording import layout
from whorl.core.recording.recorder import Recorder
from whorl.core.recording.tasks import LoopTasks

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if not cython.compiled:
    from whorl.core import states
    from whorl.core.figures import move_back
    from whorl.core.figures import note as note_number
    from whorl.core.recording.names import forget_names
    from whorl.core.recording.recorder import units
    from whorl.core.recording.slot import end_fields, refresh_figures, tell_call, tell_no_call
    from whorl.core.recording.task_table import find, forget_newest, is_record, no_record

CLOSED = 2

#: A timer that is so late has an event.
LATE_NS = 1_000_000
#: The counters are written at most so often.
COUNTERS_NS = 10_000_000
NO_DESCRIPTOR = 0xFFFFFFFF


class LoopRecorder(LoopTasks):
    """Records a loop, which calls the methods with an underscore in its own thread."""

    def __init__(self, recorder: Recorder, loop: Any, slot: int, number: int) -> None:
        LoopTasks.__init__(self, recorder, loop, slot, number)
        self._in_call = False
        self._in_machine_turn = False
        self._turn_ns = self._last_ns  # when the turn began, or when its sleep ended
        self._slept_ns = 0  # how long it slept since then
        self._entries_before = 0  # the number of entries that had run when it began
        self._published_ns = 0  # when the numbers of the loop were written last
        self._counted_ns = 0  # when the counters were written last
        self._idle_before = 0
        self._handle_count = len(loop._open_handles())
        self._open_slot(loop)

    # For anyone.

    def close(self) -> None:
        """End it. The slot keeps the last numbers until another loop needs it."""
        if self._is_open:
            tell_no_call(self)
            self._fields[layout.SLEEP_BEGAN] = 0
            self._fields[layout.STATE] = CLOSED
            refresh_figures(self)
            self._leave_slot()

    def _leave_slot(self) -> None:
        """Move the figures back, and write to the recording no more."""
        if self._is_open:
            self._is_open = False
            end_fields(self)
            move_back(self._figures)
            self._recorder._open[self._slot] = None
            self._current = no_record()
            forget_newest(self)
            forget_names(self)
            self._kept, kept = {}, self._kept
            del kept  # This may run any code.
            self._current_task = self._newest = None

    def __del__(self) -> None:
        if getattr(self, "number", 0):
            self.close()

    # Callbacks.

    def _begin(self, entry: Runnable) -> None:
        """Note that an entry begins, at the end of the one before it."""
        self._in_call = True
        if self._is_open:
            task = self._task_of(entry)
            record = no_record()
            if task is not None:
                record = find(self, task)
                if not is_record(record):
                    record = self._meet(task, self._last_ns, True)
            if is_record(record):
                self._begin_step(record, task, self._last_ns)
            else:
                tell_call(self, self._last_ns, self._name_of(entry), 0)
            if not cython.compiled and type(self._kernel) is Kernel:
                # Uncompiled, this took as long as a short callback. A simulated clock moves when it is read.
                self._last_ns = self._kernel.now()

    def _end_long(self, entry: Runnable, took: int) -> None:
        """Note the end of an entry that took long, and was no step of a task."""
        if self._is_open:
            is_handle = not isinstance(entry, Callback) and hasattr(entry, "fileno")
            low = descriptor_of(entry) if is_handle else 0
            flags = layout.IO if is_handle else 0
            self._put(self._last_ns, units(took), layout.CALLBACK, flags, self._fields[layout.CALL_NAME], low)

    # Turns, sleeps, timers, handles.

    def _publish(
        self,
        now: int,
        thread: int,
        turns: int,
        events: int,
        callbacks: int,
        idle_ns: int,
        run_began: int,
        ran_ns: int,
        ready: int,
        timers: int,
        handles: int,
    ) -> None:
        """Write the numbers of the loop into its slot."""
        fields = self._fields
        self._published_ns = now
        fields[layout.UPDATED] = now
        fields[layout.TURNS] = turns
        fields[layout.EVENTS] = events
        fields[layout.CALLBACKS] = callbacks
        fields[layout.IDLE] = idle_ns
        fields[layout.RUN_BEGAN] = run_began
        fields[layout.RAN] = ran_ns
        fields[layout.WAITING] = ready
        fields[layout.TIMERS] = timers
        fields[layout.OPEN_HANDLES] = handles
        if thread != self._thread:
            self._thread = thread
            fields[layout.THREAD] = threading.get_native_id()
        if now - self._counted_ns >= COUNTERS_NS:
            self._write_counters(now, ready, idle_ns)

    def _put_turn(self, took: int, entries: int) -> None:
        """Write the event of a turn that took long; `entries` have run by now."""
        self._put(self._turn_ns, units(took), layout.TURN, 0, 0, entries - self._entries_before)

    def _falls_asleep(self, now: int) -> None:
        self._fields[layout.SLEEP_BEGAN] = now
        refresh_figures(self)

    def _has_slept(self, began: int, now: int, found: int, entries: int) -> None:
        self._fields[layout.SLEEP_BEGAN] = 0
        self._last_ns = now
        if entries == self._entries_before:
            self._turn_ns = now
            self._slept_ns = 0
        else:
            self._slept_ns += now - began
        if now - began >= self._shortest_ns:
            self._put(began, units(now - began), layout.POLL, 0, 0, found)

    def _timer_was_late(self, timer: Callback, now: int, late: int) -> None:
        if late >= LATE_NS and self._is_open:
            self._put(now - late, units(late), layout.TIMER_LATE, 0, self._name_of(timer), 0)

    def _handle_changed(self, handle: Any, kind: int) -> None:
        """Note that a handle was opened or closed."""
        if self._is_open:
            self._handle_count += 1 if kind == layout.HANDLE_OPENED else -1
            name = self._find_name(handle)
            self._put(self._kernel.now(), 0, kind, 0, name, descriptor_of(handle))

    def _write_counters(self, now: int, ready: int, idle_ns: int) -> None:
        """Write the counters, as 10 ms have passed since the last time."""
        elapsed, asleep = now - self._counted_ns, idle_ns - self._idle_before
        if self._counted_ns:
            self._put(now, 0, layout.READY, 0, 0, ready)
            self._put_total(now, layout.BYTES_IN, self._figures.counters.bytes_in)
            self._put_total(now, layout.BYTES_OUT, self._figures.counters.bytes_out)
            self._put(now, 0, layout.HANDLES, 0, 0, max(0, self._handle_count))
            self._put(now, 0, layout.UTILIZATION, 0, 0, 1000 - min(1000, 1000 * asleep // elapsed))
        self._counted_ns = now
        self._idle_before = idle_ns
        if self._has_ticks:
            self._measure_ticks(self._kernel.now())
        refresh_figures(self)

    def _put_total(self, now: int, kind: int, total: int) -> None:
        if self._is_open:
            self._recorder._put(now, 0, kind, 0, self.number, total)


if not cython.compiled:

    def begins_alike(recorder: LoopRecorder, entry: Runnable) -> bool:
        """Begin an entry whose name is at hand, and return whether it was; uncompiled, it is not."""
        return False

    def end_call(recorder: LoopRecorder, entry: Runnable, now: int) -> None:
        """Note that the entry has ended that began last."""
        if not recorder._in_call:
            return
        took = now - recorder._last_ns
        recorder._in_call = False
        if recorder._is_open:
            note_number(recorder._figures, states.CALLBACK, took)
        if is_record(recorder._current):
            recorder._end_step(now)
        elif took >= recorder._shortest_ns:
            recorder._end_long(entry, took)
        recorder._last_ns = now

    def begin_batch(recorder: LoopRecorder, poll_ended: int) -> int:
        """Note that entries begin to run, not before the last poll has ended; return the time."""
        recorder._last_ns = max(recorder._last_ns, poll_ended)
        return recorder._last_ns

    def end_batch(recorder: LoopRecorder) -> None:
        """Note that no entry runs any more."""
        tell_no_call(recorder)
        recorder._in_call = False

    def end_turn(recorder: LoopRecorder, now: int, entries: int) -> None:
        """Note the end of a turn; `entries` have run by now."""
        took = now - recorder._turn_ns - recorder._slept_ns
        if took >= recorder._shortest_ns:
            recorder._put_turn(took, entries)
        recorder._turn_ns = now
        recorder._slept_ns = 0
        recorder._entries_before = entries


def open_loop(recorder: Recorder, loop: Any) -> LoopRecorder | None:
    """Return what records a loop; None if all slots are in use.

    From now on the figures of the loop lie in its slot. The loop is recorded once its `_set_recorder` has
    been called.
    """
    recorder._check()
    for slot in range(layout.LOOPS):
        former = recorder._open[slot]
        if former is None or former() is None:
            recorder._loops_opened += 1
            opened = LoopRecorder(recorder, loop, slot, recorder._loops_opened)
            recorder._open[slot] = weakref.ref(opened)
            return opened
    return None


def descriptor_of(handle: Any) -> int:
    """Return the descriptor of a handle as 32 bits, all of them set if it has none now."""
    number: Any = -1
    try:
        number = handle.fileno()
    except Exception:
        pass
    return int(number) & NO_DESCRIPTOR if type(number) is int else NO_DESCRIPTOR
