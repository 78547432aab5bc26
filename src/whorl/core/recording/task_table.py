"""The figures of the tasks of a watched loop, in a table by the tasks' addresses.

A task is known by a weak reference without a callback, which is looked at when the task is looked up. So an
address that is used again is noticed. Tasks that died unseen are swept when the table has doubled. Most tasks
end so soon that they need neither: the task that was added last is held, and stands beside the table.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from whorl.core.recording import layout
from whorl.core.recording.names import CallbackNames
from whorl.core.recording.recorder import Recorder
from whorl.core.recording.steps import TaskKind

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from whorl.core.recording.task_figures import EndedTasks


if not cython.compiled:
    from whorl.core.recording.steps import ask

    class PlainRecord:
        """The figures of a task. Compiled, a struct."""

        def __init__(self, task: Any, kind: TaskKind) -> None:
            self.address: Any = id(task)
            self.reference: weakref.ReferenceType[Any] = weakref.ref(task)
            self.next: Any = None
            self.kind = kind
            self.number = self.name = self.made_ns = self.steps = 0
            self.busy_ns = self.scheduled_ns = self.longest_ns = 0
            self.wakes = self.self_wakes = 0
            self.queued_ns = -1  # since when it waits in the queue of the loop; -1: it does not
            self.waker = 0  # the number of the task that woke it last
            self.is_late = False  # whether it was first seen after its beginning
            self.is_told = False  # whether the event that it was made has been written

    def no_record() -> Any:
        """Return what stands for no record."""
        return None

    def is_record(record: Any) -> bool:
        """Return whether this is a record."""
        return record is not None

    def name_of(record: Any, task: Any) -> Any:
        """Ask a task for its name."""
        return record.kind.name_of(task)

    def state_of(record: Any, task: Any) -> Any:
        """Ask a task for its state, as asyncio writes it; return None if that fails."""
        return ask(record.kind.state_of, task)

    def failure_of(record: Any, task: Any) -> Any:
        """Ask a task for its exception; return None if it has none, or that fails."""
        return ask(record.kind.failure_of, task)

    def begin_table(table: TaskTable) -> None:
        """Make an empty table."""
        table._places = {}

    def forget_newest(table: TaskTable) -> None:
        """Forget the newest task, as the recording ends. The records live as long as the recorder."""
        table._newest_record = None

    def end_table(table: TaskTable) -> None:
        """Free all records."""

    def find(table: TaskTable, task: Any) -> Any:
        """Return the record of a task, `no_record()` if there is none."""
        record = table._places.get(id(task))
        return record if record is not None and record.reference() is task else None

    def add_newest(table: TaskTable, task: Any, kind: TaskKind) -> Any:
        """Hold a task that is not known yet; return its record, `no_record()` if there is no memory.

        Uncompiled, the collector may run here, too. So each record stands in the table at once.
        """
        record = PlainRecord(task, kind)
        former = table._places.pop(id(task), None)
        if former is not None:  # that of a dead task
            former.address = former
            table._places[former] = former
        table._places[id(task)] = record
        table._newest, table._newest_record = task, record
        return record

    def put_newest(table: TaskTable, task: Any) -> bool:
        """Put the record of the newest task into the table; return False if there is no memory."""
        table._newest_record = None
        return True

    def drop(table: TaskTable, record: Any) -> None:
        """Forget a task, and free its record."""
        table._places.pop(record.address, None)
        if record is table._newest_record:
            table._newest_record = None

    def free_record(table: TaskTable, record: Any) -> None:
        """Free a record that was taken out."""

    def is_full(table: TaskTable) -> bool:
        """Return whether the table has doubled since it was last swept."""
        return len(table._places) >= table._limit

    def take_dead(table: TaskTable) -> Any:
        """Take out the records of dead tasks; they are linked by `next`, and the caller frees them."""
        dead = None
        for record in list(table._places.values()):
            if record.reference() is None:
                del table._places[record.address]
                record.next, dead = dead, record
        table._limit = max(LEAST_LIMIT, 2 * len(table._places))
        return dead


LEAST_LIMIT = 64


class TaskTable(CallbackNames):
    """The part of a loop's recorder that has the records of its tasks."""

    def __init__(self, recorder: Recorder, loop: Any, slot: int, number: int) -> None:
        CallbackNames.__init__(self, recorder, loop, slot, number)
        self._limit = LEAST_LIMIT
        self._freelist_size = 0
        # The task that was met last, and its record. It is held here until it ends or waits for something, or
        # another one is met. So the many tasks that end in their first step need no weak reference.
        self._newest: Any = None
        self._newest_record: Any = no_record()
        if not cython.compiled:
            self._count = self._mask = 0
            self._first_places: Any = None
            self._places: Any = None
            self._freelist: Any = None  # the first of the records that are kept for other tasks
        begin_table(self)

    def __dealloc__(self) -> None:
        end_table(self)

    def _release_newest(self) -> bool:
        """Hold the newest task no more, but know it by a weak reference; return False without memory."""
        if not put_newest(self, self._newest):
            return False
        if not is_record(self._newest_record):  # Else code that ran meanwhile has added another one.
            self._newest = None
        return True


class EndedRow:
    """The figures of the ended tasks of one coroutine function."""

    def __init__(self, coroutine: str) -> None:
        self._coroutine = coroutine
        self._tasks = self._cancelled = self._failed = self._steps = 0
        self._busy_ns = self._scheduled_ns = self._idle_ns = self._longest_ns = 0
        self._wakes = self._self_wakes = 0

    def _add(self, record: Any, now: int, flags: int) -> None:
        idle_ns = now - record.made_ns - record.busy_ns - record.scheduled_ns
        self._tasks = self._tasks + 1
        if flags == layout.CANCELLED:
            self._cancelled = self._cancelled + 1
        elif flags == layout.FAILED:
            self._failed = self._failed + 1
        self._steps = self._steps + record.steps
        self._busy_ns = self._busy_ns + record.busy_ns
        self._scheduled_ns = self._scheduled_ns + record.scheduled_ns
        if idle_ns > 0:
            self._idle_ns = self._idle_ns + idle_ns
        if record.longest_ns > self._longest_ns:
            self._longest_ns = record.longest_ns
        self._wakes = self._wakes + record.wakes
        self._self_wakes = self._self_wakes + record.self_wakes

    def shown(self) -> EndedTasks:
        """Return the row."""
        from whorl.core.recording.task_figures import EndedTasks

        return EndedTasks(
            self._coroutine,
            self._tasks,
            self._cancelled,
            self._failed,
            self._steps,
            self._busy_ns,
            self._scheduled_ns,
            self._idle_ns,
            self._longest_ns,
            self._wakes,
            self._self_wakes,
        )
