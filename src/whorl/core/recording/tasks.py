"""The tasks of a loop, in its recording: their steps, and who wakes them."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from whorl.core.callback import Callback, GuardedCallback, Runnable
from whorl.core.recording import layout
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
    from whorl.core.recording.steps import ask, kind_for, stepped_by, stepped_by_entry
    from whorl.core.recording.task_table import (
        add_newest,
        drop,
        failure_of,
        find,
        free_record,
        is_full,
        is_record,
        name_of,
        no_record,
        state_of,
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


#: A task that only gives way to others has no event until it is so old.
UNTOLD_NS = 1_000_000
#: Ended tasks are told apart by so many names; tasks of further names are one row.
MOST_ENDED = 256
_COROUTINE = types.CoroutineType
_SUSPENDED = vars(_COROUTINE)["cr_suspended"]
_PENDING = "PENDING"
_FINISHED = "FINISHED"
_CANCELLED = "CANCELLED"


class LoopTasks(TaskTable):
    """The part of a loop's recorder that knows its tasks."""

    def __init__(self, recorder: Recorder, loop: Any, slot: int, number: int) -> None:
        TaskTable.__init__(self, recorder, loop, slot, number)
        self._tasks_met = 0
        self._ended: dict[int, EndedRow] = {}  # by the id of their name
        self._last_ended = 0  # the name and the row of the task that ended last
        self._last_row: EndedRow | None = None
        self._types: dict[type, TaskKind | None] = {}  # None for entries that are no tasks
        self._plain_type = 0  # one of these others
        self._thread = 0  # the thread that the slot has: the last one that ran the loop
        self._last_type: Any = None  # the class that was looked up last, and its kind
        self._last_kind: TaskKind | None = None
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
        record = find(self, task)
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
            return stepped_by_entry(entry)
        kind = type_key(entry)
        if kind and kind == self._plain_type:
            return None
        if self._kind_for(type(entry)) is not None:
            return entry
        if self._last_type is type(entry):  # Else there was no memory for it.
            self._plain_type = kind  # `_types` keeps it alive
        return None

    def _kind_for(self, cls: Any) -> TaskKind | None:
        """Return how to ask the tasks of a class, None for another class."""
        if cls is not self._last_type:
            self._find_kind(cls)
        return self._last_kind

    def _find_kind(self, cls: Any) -> None:
        self._last_type = self._last_kind = None
        try:
            if cls not in self._types:
                self._types[cls] = kind_for(cls)
            self._last_type, self._last_kind = cls, self._types[cls]
        except Exception:  # There is no memory.
            pass

    def _meet(self, task: Any, now: int, is_late: bool) -> Any:
        """Return a record for a task that was not seen yet.

        Return `no_record()` for one of an unknown class, or without memory.
        """
        kind = self._kind_for(type(task))
        if kind is None:
            return no_record()
        if is_full(self):
            self._drop_dead(now)
        coro = ask(kind.coro_of, task)
        name = self._coroutine_name(coro)
        if not is_late and type(coro) is _COROUTINE and ask(_SUSPENDED, coro) is True:
            is_late = True
        while self._newest is not None:  # Its end may run code that lets another one be met.
            if not self._release_newest():
                return no_record()
        if not self._is_open:  # It may end the recording, too.
            return no_record()
        record = add_newest(self, task, kind)
        if is_record(record):
            self._tasks_met = self._tasks_met + 1
            record.number = self._tasks_met
            record.name = name
            record.made_ns = now
            record.is_late = is_late
            fields = self._fields
            fields[layout.TASKS_MADE] += 1
        return record

    def _tell_made(self, record: Any, task: Any) -> None:
        """Write the event that a task was made, not before its first step: its maker may name it until then.

        It is written when the task waits for something, has had a long step, or is a millisecond old.
        CPython makes the name when it is asked for it. Tasks that end sooner need none.
        """
        record.is_told = True
        try:
            text = name_of(record, task)
            number = number_in(text)
            name = self._recorder.name_id(text) if number < 0 else 0
            flags = layout.WATCHED_LATE if record.is_late else 0
            self._put(record.made_ns, max(0, number), layout.TASK_MADE, flags, name, record.number)
        except Exception:  # There is no memory.
            pass

    def _drop_dead(self, now: int) -> None:
        """Drop the records of tasks that have died unseen."""
        record = take_dead(self)
        while is_record(record):
            following = record.next
            self._count_ended(record, now, 0)
            free_record(self, record)
            record = following

    def _note_scheduled(self, entry: Runnable) -> None:
        """Note that an entry was put into the queue; only steps of tasks matter."""
        task = self._task_of(entry)
        if task is not None:
            self._note_queued(task)

    def _note_queued(self, task: Any) -> None:
        """Note that the step of a task was put into the queue."""
        if self._is_open:
            now = time_of(self)
            record = find(self, task)
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
        fields = self._fields
        fields[layout.TASKS_DONE] += 1
        row = self._last_row
        if row is None or self._last_ended != record.name:
            row = self._row_of(record)
        if row is not None:
            row._add(record, now, flags)

    def _row_of(self, record: Any) -> EndedRow | None:
        """Return the row of the tasks of one name; None without memory for one."""
        name = record.name
        self._last_row = None
        try:
            if name not in self._ended and len(self._ended) >= MOST_ENDED:
                name = self._recorder._last_name
            if name not in self._ended:
                self._ended[name] = EndedRow(self._recorder._name_text(name))
            self._last_row = self._ended[name]
            self._last_ended = record.name
        except Exception:  # There is no memory.
            pass
        return self._last_row

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
        record, fields = self._current, self._fields
        queued = self._queued_ns
        took = now - self._step_ns
        self._current = no_record()
        fields[layout.STEPS] += 1
        record.steps += 1
        record.busy_ns += took
        if took > record.longest_ns:
            record.longest_ns = took
        is_long = took >= self._shortest_ns
        goes_on = record.queued_ns >= 0
        if not record.is_told and (is_long or (goes_on and now - record.made_ns >= UNTOLD_NS)):
            self._tell_made(record, self._current_task)
        waited = queued >= 0 and self._step_ns - queued >= self._shortest_ns
        if queued >= 0 and record.is_told and (is_long or waited):
            self._put(queued, 0, layout.WAKE, 0, self._waker, record.number)
        if is_long:
            self._put(self._step_ns, units(took), layout.STEP, 0, record.name, record.number)
        if not goes_on:
            self._look_for_end(record, self._current_task, now)
        self._current_task = None

    def _look_for_end(self, record: Any, task: Any, now: int) -> None:
        """Note what follows a step whose task is not in the queue: it waits for something, or has ended."""
        state = state_of(record, task)
        if state is _PENDING:  # As a rule, these strings are the same objects.
            self._note_wait(record, task)
        elif state is _FINISHED or state == _FINISHED:
            self._end_task(record, now, 0 if failure_of(record, task) is None else layout.FAILED)
        elif state == _CANCELLED:
            self._end_task(record, now, layout.CANCELLED)
        else:
            self._note_wait(record, task)

    def _note_wait(self, record: Any, task: Any) -> None:
        """Note that a task waits for something."""
        if not record.is_told:
            self._tell_made(record, task)
        if task is self._newest:
            self._release_newest()

    def _end_task(self, record: Any, now: int, flags: int) -> None:
        """Note that a task has ended. If its only step was short, it has no events."""
        self._count_ended(record, now, flags)
        if record.is_told:
            self._put(now, 0, layout.TASK_DONE, flags, record.name, record.number)
        drop(self, record)
        if not is_record(self._newest_record):
            self._newest = None

    def _run_step(self, context: Any, called: Any, argument: Any) -> None:
        """Call `called(argument)` inside of a callback that runs: the step of a task, as a rule."""
        task = stepped_by(called)
        if task is None or not self._is_open:
            call_with_one(context, called, argument)
            return
        outer, outer_task = self._current, self._current_task
        began, queued, waker = self._step_ns, self._queued_ns, self._waker
        name, number = self._fields[layout.CALL_NAME], self._fields[layout.CALL_TASK]
        now = self._kernel.now()
        record = find(self, task)
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
                self._fields[layout.CALL_NAME], self._fields[layout.CALL_TASK] = name, number
