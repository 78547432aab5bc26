"""The figures of the tasks of a watched loop, in a table by the tasks' addresses.

A task is known by a weak reference without a callback, which is looked at when the task is looked up. So an
address that is used again is noticed. Tasks that died unseen are swept when the table has doubled. Most tasks
end so soon that they need no weak reference: the caller of `add` holds a task until `refer_weakly`.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from whorl.core.recording import layout

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from whorl.core.recording.task_figures import EndedTasks


if not cython.compiled:

    class PlainRecord:
        """The figures of a task. Compiled, a struct."""

        def __init__(self, task: Any) -> None:
            self.address: Any = id(task)
            self.reference: weakref.ReferenceType[Any] = weakref.ref(task)
            self.next: Any = None
            self.kind = 0  # the place of its `TaskKind`
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

    def begin_table(table: TaskTable) -> None:
        """Make an empty table."""
        table._records = {}

    def end_table(table: TaskTable) -> None:
        """Free all records."""
        table._records = {}

    def find(table: TaskTable, task: Any) -> Any:
        """Return the record of a task, `no_record()` if there is none."""
        record = table._records.get(id(task))
        return record if record is not None and record.reference() is task else None

    def refer_weakly(record: Any) -> None:
        """Know a task by a weak reference from now on; uncompiled, each is."""

    def add(table: TaskTable, task: Any) -> Any:
        """Add a task that is not in the table, and that the caller holds; return its record."""
        record = PlainRecord(task)
        former = table._records.pop(id(task), None)
        if former is not None:  # that of a dead task
            former.address = former
            table._records[former] = former
        table._records[id(task)] = record
        return record

    def take(table: TaskTable, record: Any) -> None:
        """Take a record out of the table; the caller frees it."""
        del table._records[record.address]

    def free_record(table: TaskTable, record: Any) -> None:
        """Free a record that was taken out."""

    def is_full(table: TaskTable) -> bool:
        """Return whether the table has doubled since it was last swept."""
        return len(table._records) >= table._limit

    def take_dead(table: TaskTable) -> Any:
        """Take out the records of dead tasks; they are linked by `next`, and the caller frees them."""
        dead = None
        for record in list(table._records.values()):
            if record.reference() is None:
                take(table, record)
                record.next, dead = dead, record
        table._limit = max(LEAST_LIMIT, 2 * len(table._records))
        return dead


LEAST_LIMIT = 64
CANCELLED = layout.CANCELLED
FAILED = layout.FAILED


class TaskTable:
    """The records of the tasks of a loop, by the addresses of the tasks."""

    __slots__ = ("_count", "_freelist", "_freelist_size", "_limit", "_mask", "_records")

    def __init__(self) -> None:
        self._limit = LEAST_LIMIT
        self._count = self._mask = self._freelist_size = 0
        if not cython.compiled:
            self._records: Any = None
            self._freelist: Any = None  # the first of the records that are kept for other tasks
        begin_table(self)

    def __dealloc__(self) -> None:
        end_table(self)


class EndedRow:
    """The figures of the ended tasks of one coroutine function."""

    __slots__ = (
        "_busy_ns",
        "_cancelled",
        "_coroutine",
        "_failed",
        "_idle_ns",
        "_longest_ns",
        "_scheduled_ns",
        "_self_wakes",
        "_steps",
        "_tasks",
        "_wakes",
    )

    def __init__(self, coroutine: str) -> None:
        self._coroutine = coroutine
        self._tasks = self._cancelled = self._failed = self._steps = 0
        self._busy_ns = self._scheduled_ns = self._idle_ns = self._longest_ns = 0
        self._wakes = self._self_wakes = 0

    def _add(self, record: Any, now: int, flags: int) -> None:
        self._tasks += 1
        if flags == CANCELLED:
            self._cancelled += 1
        elif flags == FAILED:
            self._failed += 1
        self._steps += record.steps
        self._busy_ns += record.busy_ns
        self._scheduled_ns += record.scheduled_ns
        self._idle_ns += max(0, now - record.made_ns - record.busy_ns - record.scheduled_ns)
        if record.longest_ns > self._longest_ns:
            self._longest_ns = record.longest_ns
        self._wakes += record.wakes
        self._self_wakes += record.self_wakes

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
