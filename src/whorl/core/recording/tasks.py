"""The tasks of a loop, in its recording: their steps, and who wakes them."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from whorl.core.callback import Callback, GuardedCallback, Runnable
from whorl.core.recording import layout
from whorl.core.recording.names import CallbackNames
from whorl.core.recording.recorder import Recorder
from whorl.core.recording.steps import TaskKind
from whorl.core.recording.task_table import EndedRow, TaskTable

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from whorl.core.recording.task_figures import EndedTasks, TaskTimes

if not cython.compiled:
    from whorl.core.callback import call_with_one, thread_ident
    from whorl.core.recording.names import type_key
    from whorl.core.recording.recorder import units
    from whorl.core.recording.slot import tell_call, time_of
    from whorl.core.recording.steps import ask, kind_at, may_step, place_of, stepped_by
    from whorl.core.recording.task_table import (
        add,
        find,
        free_record,
        is_full,
        is_record,
        no_record,
        refer_weakly,
        take,
        take_dead,
    )
    from whorl.core.threads import HAS_GIL

    def number_in(name: Any) -> int:
        """Return N for the name `Task-N`, and -1 for others."""
        if type(name) is not str or not name.startswith("Task-"):
            return -1
        digits = name[5:]
        is_number = 0 < len(digits) < 10 and digits.isascii() and digits.isdigit()
        return int(digits) if is_number and (digits[0] != "0") else -1


# The places of some fields of a slot.
_FIELDS = layout.LOOP_FIELDS
CALL_NAME = _FIELDS.index("call_name")
CALL_TASK = _FIELDS.index("call_task")
TASKS_MADE = _FIELDS.index("tasks_made")
TASKS_DONE = _FIELDS.index("tasks_done")
STEPS = _FIELDS.index("steps")

STEP = layout.STEP
WAKE = layout.WAKE
TASK_MADE = layout.TASK_MADE
TASK_DONE = layout.TASK_DONE
CANCELLED = layout.CANCELLED
FAILED = layout.FAILED
WATCHED_LATE = layout.WATCHED_LATE

#: A task that only gives way to others has no event until it is so old.
UNTOLD_NS = 1_000_000
#: Ended tasks are told apart by so many names; tasks of further names are one row.
MOST_ENDED = 256
_COROUTINE = types.CoroutineType
_SUSPENDED = vars(_COROUTINE)["cr_suspended"]
_PENDING = "PENDING"
_FINISHED = "FINISHED"


class LoopTasks(CallbackNames):
    """The part of a loop's recorder that knows its tasks."""

    __slots__ = (
        "_current",
        "_current_task",
        "_ended",
        "_last_ended",
        "_last_kind",
        "_last_ns",
        "_last_place",
        "_last_row",
        "_last_type",
        "_newest",
        "_newest_record",
        "_plain_type",
        "_queued_ns",
        "_step_ns",
        "_table",
        "_tasks_met",
        "_thread",
        "_types",
        "_waker",
    )

    def __init__(self, recorder: Recorder, loop: Any, slot: int, number: int) -> None:
        CallbackNames.__init__(self, recorder, loop, slot, number)
        self._table = TaskTable()
        self._tasks_met = 0
        self._ended: dict[int, EndedRow] = {}  # by the id of their name
        self._last_ended = 0  # the name and the row of the task that ended last
        self._last_row: EndedRow | None = None
        self._types: dict[type, int] = {}  # the places of the kinds of tasks; -1 for other entries
        self._plain_type = 0  # one of these others
        self._thread = 0  # the thread that the slot has: the last one that ran the loop
        self._last_type: Any = None  # the class that was looked up last, its place and its kind
        self._last_place = -1
        self._last_kind: Any = None
        # The task that was met last, and its record. It is held here until it ends or waits for something, or
        # another one is met. So the many tasks that end in their first step need no weak reference.
        self._newest: Any = None
        self._newest_record: Any = no_record()
        self._last_ns: int = self._kernel.now()  # when the callback that runs began; else the last one's end
        self._current: Any = no_record()  # the record of the task whose step runs
        self._current_task: Any = None
        self._step_ns = 0  # when that step began
        self._queued_ns = -1  # since when it had waited in the queue; -1: it had not
        self._waker = 0  # the number of the task that had put it there

    # For anyone.

    def times_of(self, task: Any) -> TaskTimes | None:
        """Return the times of a task up to now; None if it has ended, or was not seen yet.

        Without the GIL, the loop may free the record at any time. So other threads get None there.
        """
        from whorl.core.recording.task_figures import TaskTimes

        if not self._is_open or (not HAS_GIL and self._thread != thread_ident()):
            return None
        record = find(self._table, task)
        if not is_record(record):
            return None
        now = max(self._kernel.now(), self._last_ns)
        busy, scheduled, longest = record.busy_ns, record.scheduled_ns, record.longest_ns
        if self._current_task is task:
            busy += now - self._step_ns
            longest = max(longest, now - self._step_ns)
        if record.queued_ns >= 0:
            scheduled += max(0, now - record.queued_ns)
        idle = max(0, now - record.made_ns - busy - scheduled)
        times = (busy, scheduled, idle, longest, record.wakes, record.self_wakes, record.made_ns)
        return TaskTimes(record.number, record.steps, *times)

    def ended_tasks(self) -> list[EndedTasks]:
        """Return the tasks that have ended, one row for each name of a coroutine.

        The order is that in which the first of each name ended. After 256 names, all others are one row.
        """
        return [row.shown() for row in list(self._ended.values())]

    # Tasks.

    def _task_of(self, entry: Runnable) -> Any:
        """Return the task whose step an entry is, or None."""
        if type(entry) is Callback or type(entry) is GuardedCallback:
            callback: Callback = entry
            return stepped_by(callback._callback) if may_step(callback._callback) else None
        kind = type_key(entry)
        if kind and kind == self._plain_type:
            return None
        if self._kind_place(type(entry)) >= 0:
            return entry
        self._plain_type = kind  # `_types` keeps it alive
        return None

    def _kind_place(self, kind: Any) -> int:
        """Return the place of the kind of a class of tasks, -1 for another class."""
        if kind is not self._last_type:
            place = self._types.get(kind)
            if place is None:
                place = self._types[kind] = place_of(kind)
            self._last_type, self._last_place = kind, int(place)
            self._last_kind = kind_at(self._last_place) if self._last_place >= 0 else None
        return self._last_place

    def _kind_of(self, record: Any) -> TaskKind:
        kind: TaskKind = self._last_kind if record.kind == self._last_place else kind_at(record.kind)
        return kind

    def _meet(self, task: Any, now: int, is_seen_late: bool) -> Any:
        """Return a record for a task that was not seen yet; `no_record()` for one of an unknown class."""
        record = no_record()
        try:
            record = self._new_record(task, now, is_seen_late)
        except Exception:  # There is no memory.
            pass
        return record

    def _new_record(self, task: Any, now: int, is_seen_late: bool) -> Any:
        place = self._kind_place(type(task))
        if place < 0:
            return no_record()
        kind: TaskKind = self._last_kind  # What follows may run code that lets others be looked up.
        if is_full(self._table):
            self._drop_dead(now)
        coro = ask(kind.coro_of, task)
        coroutine = self._coroutine_name(coro)
        if not is_seen_late and type(coro) is _COROUTINE and ask(_SUSPENDED, coro):
            is_seen_late = True
        while self._newest is not None:  # Its end may run code that lets another one be met.
            self._release_newest()
        if not self._is_open:  # It may end the recording, too.
            return no_record()
        record = add(self._table, task)
        self._newest, self._newest_record = task, record
        self._tasks_met += 1
        record.number = self._tasks_met
        record.kind = place
        record.name = coroutine
        record.made_ns = now
        record.is_late = is_seen_late
        self._fields[TASKS_MADE] += 1
        return record

    def _release_newest(self) -> None:
        """Hold the newest task no more, but know it by a weak reference."""
        if self._newest is not None:
            refer_weakly(self._newest_record)
            self._newest_record = no_record()
            self._newest = None

    def _tell_made(self, record: Any, task: Any) -> None:
        """Write the event that a task was made, not before its first step: its maker may name it until then.

        It is written when the task waits for something, has had a long step, or is a millisecond old.
        CPython makes the name when it is asked for it. Tasks that end sooner need none.
        """
        record.is_told = True
        try:
            kind: TaskKind = self._kind_of(record)
            text = kind.name_of(task)
            number = number_in(text)
            name = self._recorder.name_id(text) if number < 0 else 0
            flags = WATCHED_LATE if record.is_late else 0
            self._put(record.made_ns, max(0, number), TASK_MADE, flags, name, record.number)
        except Exception:  # There is no memory.
            pass

    def _drop_dead(self, now: int) -> None:
        """Drop the records of tasks that have died unseen."""
        record = take_dead(self._table)
        while is_record(record):
            following = record.next
            self._count_ended(record, now, 0)
            free_record(self._table, record)
            record = following

    def _note_scheduled(self, entry: Runnable) -> None:
        """Note that an entry was put into the queue; only steps of tasks matter."""
        task = self._task_of(entry)
        if task is not None:
            self._note_queued(task)

    def _note_called_soon(self, called: Any) -> None:
        """Note that what may be the step of a task was given to `call_soon`."""
        task = stepped_by(called)
        if task is not None:
            self._note_queued(task)

    def _note_queued(self, task: Any) -> None:
        """Note that the step of a task was put into the queue."""
        if not self._is_open:
            return
        now = time_of(self)
        record = find(self._table, task)
        if is_record(record):
            self._note_wake(record)
        else:
            record = self._meet(task, now, False)
        if is_record(record):
            record.queued_ns = now
            record.waker = self._current.number if is_record(self._current) else 0

    def _note_wake(self, record: Any) -> None:
        record.wakes += 1
        if is_record(self._current) and self._current.number == record.number:
            record.self_wakes += 1

    def _count_ended(self, record: Any, now: int, flags: int) -> None:
        self._fields[TASKS_DONE] += 1
        if self._last_row is None or self._last_ended != record.name:
            self._last_row = self._row_of(record)
            self._last_ended = record.name
        self._last_row._add(record, now, flags)

    def _row_of(self, record: Any) -> EndedRow:
        name = record.name
        if name not in self._ended and len(self._ended) >= MOST_ENDED:
            name = self._recorder._last_name
        if name not in self._ended:
            self._ended[name] = EndedRow(self._recorder._name_text(name))
        return self._ended[name]

    # Steps.

    def _begin_step(self, record: Any, task: Any, now: int) -> None:
        self._current = record
        self._current_task = task
        self._step_ns = now
        self._queued_ns = record.queued_ns
        self._waker = record.waker
        record.queued_ns = -1
        if self._queued_ns > now:
            self._queued_ns = now
        if self._queued_ns >= 0:
            record.scheduled_ns += now - self._queued_ns
        tell_call(self, self._last_ns, record.name, record.number)

    def _end_step(self, now: int) -> None:
        record = self._current
        task = self._current_task
        took = now - self._step_ns
        self._current = no_record()
        self._fields[STEPS] += 1
        record.steps += 1
        record.busy_ns += took
        if took > record.longest_ns:
            record.longest_ns = took
        is_long = took >= self._shortest_ns
        goes_on = record.queued_ns >= 0
        if not record.is_told and (is_long or (goes_on and now - record.made_ns >= UNTOLD_NS)):
            self._tell_made(record, task)
        waited = self._queued_ns >= 0 and self._step_ns - self._queued_ns >= self._shortest_ns
        if self._queued_ns >= 0 and record.is_told and (is_long or waited):
            self._put(self._queued_ns, 0, WAKE, 0, self._waker, record.number)
        if is_long:
            self._put(self._step_ns, units(took), STEP, 0, record.name, record.number)
        if not goes_on:
            self._look_for_end(record, task, now)
        self._current_task = None

    def _look_for_end(self, record: Any, task: Any, now: int) -> None:
        try:
            self._end_task(record, task, now)
        except Exception:  # There is no memory.
            pass

    def _end_task(self, record: Any, task: Any, now: int) -> None:
        """Note the end of a task, if this was its last step.

        A task whose only step was short has no events.
        """
        kind: TaskKind = self._kind_of(record)
        state = ask(kind.state_of, task)
        flags = 0
        if state is _FINISHED:
            pass  # As a rule, these strings are the same objects.
        elif state == _PENDING:
            if not record.is_told:
                self._tell_made(record, task)
            if task is self._newest:
                self._release_newest()
            return
        elif state == "CANCELLED":
            flags = CANCELLED
        if flags == 0 and ask(kind.failure_of, task) is not None:
            flags = FAILED
        self._count_ended(record, now, flags)
        if record.is_told:
            self._put(now, 0, TASK_DONE, flags, record.name, record.number)
        if task is self._newest:
            self._newest_record = no_record()
            self._newest = None
        take(self._table, record)
        free_record(self._table, record)

    def _run_step(self, context: Any, called: Any, argument: Any) -> None:
        """Call `called(argument)` inside of a callback that runs: the step of a task, as a rule."""
        task = stepped_by(called)
        if task is None or not self._is_open:
            call_with_one(context, called, argument)
            return
        outer, outer_task = self._current, self._current_task
        began, queued, waker = self._step_ns, self._queued_ns, self._waker
        name, number = self._fields[CALL_NAME], self._fields[CALL_TASK]
        now = self._kernel.now()
        record = find(self._table, task)
        if is_record(record):
            self._note_wake(record)
        else:
            record = self._meet(task, now, True)
        if is_record(record):
            self._begin_step(record, task, now)
        try:
            call_with_one(context, called, argument)
        finally:
            if is_record(record) and self._is_open:
                self._end_step(self._kernel.now())
            if self._is_open:
                self._current, self._current_task = outer, outer_task
                self._step_ns, self._queued_ns, self._waker = began, queued, waker
                self._fields[CALL_NAME], self._fields[CALL_TASK] = name, number
