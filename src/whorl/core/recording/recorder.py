"""The recorder: writes what the loops of a process do into a recording, while they do it.

A loop that is watched has a `LoopRecorder`. It calls that around each callback, each sleep and each turn, and
when a step of a task is queued. So a loop that is not watched pays nothing. Numbers go into the slot of the
loop; what took long goes into the ring of events.

The step of a task is told by its callback, without a task factory. asyncio's tasks in C queue one of two
callbacks, both of which know the task. Whorl's own tasks stand in the queue themselves. `know_tasks` says
what the classes of tasks are.

All of this needs the interpreter's lock. A build without it would have to change three things. Other threads
may add to the figures while they move. The ring's next place would have to be taken atomically. And
`times_of` may read a record while the loop frees it.
"""

from __future__ import annotations

import functools
import threading
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from whorl.core import metrics
from whorl.core.callback import Callback, GuardedCallback, Runnable
from whorl.core.kernel.kernel import Kernel
from whorl.core.recording import layout
from whorl.core.recording.task_table import EndedTasks, TaskTable, TaskTimes

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from whorl.core.figures import Figures

if not cython.compiled:
    from whorl.core.callback import call_with_one
    from whorl.core.figures import copy_figures, move_back, move_into
    from whorl.core.figures import note as note_number
    from whorl.core.recording.task_table import (
        add,
        find,
        free_record,
        is_full,
        is_record,
        no_record,
        take,
        take_dead,
    )

# The places of the fields of a slot.
_FIELDS = layout.LOOP_FIELDS
FIELDS = len(_FIELDS)
UPDATED = _FIELDS.index("updated_ns")
TURNS = _FIELDS.index("turns")
EVENTS = _FIELDS.index("events")
CALLBACKS = _FIELDS.index("callbacks")
IDLE = _FIELDS.index("idle_ns")
RUN_BEGAN = _FIELDS.index("run_began_ns")
RAN = _FIELDS.index("ran_ns")
WAITING = _FIELDS.index("ready")
TIMERS = _FIELDS.index("timers")
OPEN_HANDLES = _FIELDS.index("handles")
STATE = _FIELDS.index("state")
NUMBER = _FIELDS.index("number")
THREAD = _FIELDS.index("thread")
SLEEP_BEGAN = _FIELDS.index("sleep_began_ns")
CALL_BEGAN = _FIELDS.index("call_began_ns")
CALL_NAME = _FIELDS.index("call_name")
CALL_TASK = _FIELDS.index("call_task")
TASKS_MADE = _FIELDS.index("tasks_made")
TASKS_DONE = _FIELDS.index("tasks_done")
STEPS = _FIELDS.index("steps")
OPEN = 1
CLOSED = 2

CALLBACK_TIMES = metrics.CALLBACK

# The kinds of events, and their flags.
TURN = layout.TURN
POLL = layout.POLL
CALLBACK = layout.CALLBACK
STEP = layout.STEP
WAKE = layout.WAKE
TASK_MADE = layout.TASK_MADE
TASK_DONE = layout.TASK_DONE
TIMER_LATE = layout.TIMER_LATE
READY = layout.READY
BYTES_IN = layout.BYTES_IN
BYTES_OUT = layout.BYTES_OUT
HANDLES = layout.HANDLES
UTILIZATION = layout.UTILIZATION
HANDLE_OPENED = layout.HANDLE_OPENED
HANDLE_CLOSED = layout.HANDLE_CLOSED
CANCELLED = layout.CANCELLED
FAILED = layout.FAILED
IO = layout.IO
WATCHED_LATE = layout.WATCHED_LATE
EVENT_WORDS = layout.EVENT.size // 8
TOOK_UNIT_NS = layout.TOOK_UNIT_NS
LONGEST_TOOK = layout.LONGEST_TOOK
WRITTEN = layout.EVENTS_WRITTEN_AT // 8

#: A timer that is so late has an event.
LATE_NS = 1_000_000
#: Shorter callbacks are timed by the processor's ticks. In so short a time, a wrong factor does no harm.
LONGEST_BY_TICKS = 1_000_000
#: The counters are written at most so often.
COUNTERS_NS = 10_000_000
#: Ended tasks are told apart by so many names; tasks of further names are one row.
MOST_ENDED = 256
#: So many names of callbacks are kept at hand.
NAMES_KEPT = 4096
REST: Final = "…"
NO_DESCRIPTOR = 0xFFFFFFFF
_PARTIAL = functools.partial
_COROUTINE = types.CoroutineType
_GENERATOR = types.GeneratorType
_METHOD = types.MethodType
_FUNCTION = types.FunctionType
_BUILTIN = types.BuiltinFunctionType
_COMPILED_FUNCTION: type = type(vars(Callback)["cancel"])


class TaskKind:
    """The functions by which to ask the tasks of one class; no code of the program's runs in them."""

    __slots__ = ("coro_of", "failure_of", "is_cancelled", "is_done", "name_of")

    def __init__(
        self,
        name_of: Callable[[Any], str],
        coro_of: Callable[[Any], Any],
        is_done: Callable[[Any], bool],
        is_cancelled: Callable[[Any], bool],
        failure_of: Callable[[Any], Any],
    ) -> None:
        self.name_of: Any = name_of
        self.coro_of: Any = coro_of
        self.is_done: Any = is_done
        self.is_cancelled: Any = is_cancelled
        self.failure_of: Any = failure_of


_kinds: list[TaskKind] = []
_places: dict[type, int] = {}  # of the classes of tasks in `_kinds`


def know_tasks(
    cls: type,
    kind: TaskKind,
    *,
    step: object = None,
    step_of: object = None,
    methods: tuple[Any, ...] = (),
) -> bool:
    """Let recorders know the tasks of a class and of its subclasses; return whether they will.

    `step` is a callback that begins the task `step_of`; its class stands for all such callbacks. `methods`
    are functions whose bound methods step the task that they are bound to. A task may also stand in the queue
    of the loop itself.
    """
    if cls in _places:
        return True
    if step is not None and not learn_step(step, step_of):
        return False
    for method in methods:
        learn_method(method)
    _places[cls] = len(_kinds)
    _kinds.append(kind)
    return True


if not cython.compiled:
    _step_types: list[Any] = []
    _step_methods: list[Any] = []

    def learn_step(step: Any, task: Any) -> bool:
        """Learn which type of callback begins a task, from one and its task."""
        if getattr(step, "__self__", None) is not task:
            return False
        _step_types.append(type(step))
        return True

    def learn_method(function: Any) -> None:
        """Learn a function whose bound methods step the task that they are bound to."""
        _step_methods.append(function)

    def has_failed(failure_of: Any, task: Any) -> bool:
        """Return whether a descriptor, or a function, tells of a task's failure."""
        get = getattr(failure_of, "__get__", None) if type(failure_of) is not types.FunctionType else None
        return (failure_of(task) if get is None else get(task)) is not None

    def may_step(called: Any) -> bool:
        """Return whether a callback may be the step of a task; uncompiled, each is looked at."""
        return True

    def may_be_step(entry: Runnable) -> bool:
        """Return whether an entry may be the step of a task."""
        return True

    def stepped_by(called: Any) -> Any:
        """Return the task that a callback steps, or None."""
        kind = type(called)
        if kind in _step_types:
            return called.__self__
        if kind is types.BuiltinFunctionType and called.__name__ == "task_wakeup":
            return called.__self__
        if kind is types.MethodType and called.__func__ in _step_methods:
            return called.__self__
        return None

    def key_of(called: Any) -> int:
        """Return what tells the callbacks of a function apart from others; uncompiled, all are looked at."""
        return 0

    def type_key(thing: Any) -> int:
        """Return what tells the type of an object apart from others; uncompiled, all are looked at."""
        return 0

    def time_of(recorder: LoopRecorder) -> int:
        """Return the time, by ticks of the processor where they may be used; uncompiled, by the clock."""
        return recorder._kernel.now()

    def read_ticks() -> int:
        """Return the processor's ticks; uncompiled, they are not used."""
        return 0

    def known_name(recorder: LoopRecorder, key: int) -> int:
        """Return the name that was kept for a key, 0 if there is none."""
        return 0

    def keep_name(recorder: LoopRecorder, key: int, name: int) -> None:
        """Keep a name for a key."""

    def forget_names(recorder: LoopRecorder) -> None:
        """Forget the names that were kept."""
        recorder._last_key = 0

    def begin_memory(recorder: Recorder) -> None:
        """Find the memory of a recording."""
        recorder._words = recorder._view.cast("q")

    def begin_fields(opened: LoopRecorder) -> None:
        """Find the fields of a slot."""
        at = opened._slot_at
        opened._fields = opened._recorder._view[at : at + 8 * FIELDS].cast("q")

    def end_fields(opened: LoopRecorder) -> None:
        """Let the fields be in memory of the recorder's own."""
        opened._fields = [0] * FIELDS

    def move_figures(opened: LoopRecorder) -> None:
        """Move the figures of the loop into its slot."""
        at = opened._slot_at + layout.FIGURES_AT
        move_into(opened._figures, opened._recorder._view[at : opened._slot_at + layout.LOOP_SIZE])

    def refresh_figures(opened: LoopRecorder) -> None:
        """Copy the figures into the slot. Compiled, they lie there; uncompiled, now and then must do."""
        if opened._is_open:
            copy_figures(opened._figures)

    def put_event(
        recorder: Recorder, at: int, took: int, kind: int, flags: int, loop: int, subject: int
    ) -> None:
        """Write an event at the ring's next place."""
        place = recorder._ring_at + recorder._place * layout.EVENT.size
        layout.EVENT.pack_into(recorder._view, place, at, took, kind, flags, loop & 0xFFFF, subject)
        recorder._words[WRITTEN] += 1


class Recorder:
    """Writes a recording; a process has one."""

    __slots__ = (
        "__weakref__",
        "_event_count",
        "_kernel",
        "_last_name",
        "_loops_at",
        "_loops_opened",
        "_name_ids",
        "_names_at",
        "_names_size",
        "_open",
        "_place",
        "_ring_at",
        "_stall_count",
        "_stalls_at",
        "_view",
        "_words",
        "shortest_ns",
    )

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
        self.shortest_ns = shortest_ns
        self._words: Any
        begin_memory(self)
        self._place = self._words[WRITTEN] % self._event_count
        self._name_ids: dict[str, int] = {}
        self._kernel = Kernel()
        self._open: list[Any] = [None] * layout.LOOPS  # weak references to those who use the slots
        self._loops_opened = 0
        self._last_name = 0
        self._last_name = self.name_id(REST)

    def _check(self) -> None:
        if self._view is None:
            raise ValueError("the recording was abandoned")

    def open_loop(self, loop: Any) -> LoopRecorder | None:
        """Return what records a loop; None if all slots are in use.

        From now on the figures of the loop lie in its slot. The loop is recorded once its `_set_recorder` has
        been called.
        """
        self._check()
        for slot in range(layout.LOOPS):
            former = self._open[slot]
            if former is None or former() is None:
                self._loops_opened += 1
                opened = LoopRecorder(self, loop, slot, self._loops_opened)
                self._open[slot] = weakref.ref(opened)
                return opened
        return None

    def name_id(self, text: str) -> int:
        """Return the id of a name; that of "…" if there is no room for another one."""
        self._check()
        found = self._name_ids.get(text)
        if found is not None:
            return found
        name = text.encode("utf-8", "replace")[: layout.LONGEST_NAME]
        name = name.decode("utf-8", "ignore").encode()
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
        for text, known in self._name_ids.items():
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
            self._place += 1
            if self._place == self._event_count:
                self._place = 0

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
        self._words[layout.ALIVE_AT // 8] = now_ns
        self._words[layout.STARVED_AT // 8] = starved

    def finish(self) -> None:
        """Note that the recording ends here. Loops that are still recorded go on."""
        self._check()
        self._words[layout.STATE_AT // 8] = layout.FINISHED

    def abandon(self) -> None:
        """Let all loops end their recording, and let go of the memory without writing to it.

        A forked child calls this, whose memory is also its parent's.
        """
        for former in self._open:
            opened = None if former is None else former()
            if opened is not None:
                opened._leave_slot()
        self._view = None


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


class LoopRecorder:
    """Records a loop, which calls the methods with an underscore in its own thread."""

    __slots__ = (
        "__weakref__",
        "_base_ns",
        "_base_ticks",
        "_cache",
        "_counted_ns",
        "_current",
        "_current_task",
        "_ended",
        "_entries_before",
        "_fields",
        "_figures",
        "_handle_count",
        "_has_ticks",
        "_idle_before",
        "_in_call",
        "_in_machine_turn",
        "_is_open",
        "_kept",
        "_kernel",
        "_last_ended",
        "_last_key",
        "_last_name",
        "_last_ns",
        "_last_row",
        "_measured_ns",
        "_measured_ticks",
        "_own_fields",
        "_plain_type",
        "_published_ns",
        "_queued_ns",
        "_recorder",
        "_shortest_ns",
        "_slept_ns",
        "_slot",
        "_slot_at",
        "_step_ns",
        "_table",
        "_tasks_met",
        "_thread",
        "_tick_ns",
        "_turn_ns",
        "_types",
        "_waker",
        "number",
    )

    def __init__(self, recorder: Recorder, loop: Any, slot: int, number: int) -> None:
        if getattr(self, "number", 0):
            raise RuntimeError("the recorder is initialized already")
        self._is_open = False
        self._recorder = recorder
        self._slot = slot
        self._slot_at = self._recorder._loops_at + slot * layout.LOOP_SIZE
        self.number = number
        self._kernel: Kernel = loop._kernel
        self._figures: Figures = loop._figures
        self._shortest_ns = recorder.shortest_ns
        # Tasks.
        self._table = TaskTable()
        self._tasks_met = 0
        self._ended: dict[int, EndedRow] = {}  # by the id of their name
        self._last_ended = 0  # the name and the row of the task that ended last
        self._last_row: EndedRow | None = None
        self._types: dict[type, int] = {}  # the places of the kinds of tasks; -1 for other entries
        self._plain_type = 0  # one of these others
        # Names of callbacks.
        self._kept: dict[int, Any] = {}  # keeps alive what `_cache` knows by its address
        self._last_key = 0  # of the last callback, and its name
        self._last_name = 0
        if not cython.compiled:
            self._cache: Any = None
            self._own_fields: Any = None
        # The callback that runs.
        self._in_call = False
        self._last_ns: int = self._kernel.now()  # when it began; else the end of the last one, or later
        self._current: Any = no_record()  # the record of the task whose step runs
        self._current_task: Any = None
        self._step_ns = 0  # when that step began
        self._queued_ns = -1  # since when it had waited in the queue; -1: it had not
        self._waker = 0  # the number of the task that had put it there
        # The turn.
        self._in_machine_turn = False
        self._turn_ns = self._last_ns  # when it began, or when its sleep ended
        self._slept_ns = 0  # how long it slept since then
        self._entries_before = 0  # the number of entries that had run when it began
        # The clock. The times of a simulated world, and of tests that replace it, are the kernel's own.
        self._has_ticks = cython.compiled and type(self._kernel) is Kernel
        self._tick_ns = 0.0  # how long a tick is, once that was measured
        self._base_ns = self._base_ticks = 0  # a time, and the ticks then
        self._measured_ns = self._measured_ticks = 0  # the same, for measuring
        self._published_ns = 0  # when the numbers of the loop were written last
        self._counted_ns = 0  # when the counters were written last
        self._idle_before = 0
        self._handle_count = len(loop._open_handles())
        self._thread = 0  # the thread that the slot has
        # The slot.
        self._recorder._view[self._slot_at : self._slot_at + layout.LOOP_SIZE] = bytes(layout.LOOP_SIZE)
        self._fields: Any
        begin_fields(self)
        self._fields[NUMBER] = number
        loop._fold_alone()
        move_figures(self)
        self._is_open = True
        self._fields[STATE] = OPEN

    # For anyone.

    def close(self) -> None:
        """End it. The slot keeps the last numbers until another loop needs it."""
        if self._is_open:
            self._fields[CALL_BEGAN] = self._fields[SLEEP_BEGAN] = 0
            self._fields[STATE] = CLOSED
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
            self._table, former = TaskTable(), self._table
            forget_names(self)
            self._kept, kept = {}, self._kept
            del former, kept  # This may run any code.
            self._current_task = None

    def __del__(self) -> None:
        if getattr(self, "number", 0):
            self.close()

    def times_of(self, task: Any) -> TaskTimes | None:
        """Return the times of a task up to now; None if it has ended, or was not seen yet."""
        if not self._is_open:
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

    # Names.

    def _name_of(self, entry: Runnable) -> int:
        """Return the id of the name of an entry that is no step of a task."""
        called: Any = entry
        if type(entry) is Callback or isinstance(entry, Callback):
            callback: Callback = entry
            called = callback._callback
            key = key_of(called)
        else:
            key = type_key(entry)
        if key and key == self._last_key:  # A program calls the same again and again.
            return self._last_name
        name = (known_name(self, key) if key else 0) or self._find_name(called)
        if name:
            self._last_key, self._last_name = key, name
        return name

    def _find_name(self, called: Any) -> int:
        """Return the name of a callable; of one without a name of its own, that of its class."""
        name = 0
        try:
            name = self._look_up_name(called)
        except Exception:  # There is no memory.
            pass
        return name

    def _look_up_name(self, called: Any) -> int:
        while type(called) is _PARTIAL:
            called = called.func
        if type(called) is _METHOD:
            called = called.__func__
        key = key_of(called)
        kept = called
        if type(called) is _BUILTIN:
            kept = None  # its `__self__` would live on
        elif type(called) is _FUNCTION:
            kept = called.__code__
        elif type(called) not in _NAMED:
            kept = type(called)
        if not key:
            key = id(kept)
        return known_name(self, key) or self._new_name(key, kept, called if kept is None else kept)

    def _new_name(self, key: int, kept: Any, named: Any) -> int:
        text = named.co_qualname if type(named) is types.CodeType else named.__qualname__
        name = self._recorder.name_id(text if type(text) is str else "?")
        if len(self._kept) >= NAMES_KEPT:
            forget_names(self)
            self._kept.clear()
        if kept is not None:
            self._kept[id(kept)] = kept
        keep_name(self, key, name)
        return name

    def _coroutine_name(self, coro: Any) -> int:
        code: Any = None
        if type(coro) is _COROUTINE:
            code = coro.cr_code
        elif type(coro) is _GENERATOR:
            code = coro.gi_code
        if code is not None:
            return known_name(self, id(code)) or self._new_name(id(code), code, code)
        kind: Any = type(coro)
        text = kind.__qualname__
        if str(kind.__module__).startswith("_cython_"):  # a coroutine of a compiled module
            text = getattr(coro, "__qualname__", text)
        return self._recorder.name_id(text)

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
        place = self._types.get(kind)
        if place is None:
            place = -1
            for base in kind.__mro__:
                if base in _places:
                    place = _places[base]
                    break
            self._types[kind] = place
        return int(place)

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
        if is_full(self._table):
            self._drop_dead(now)
        kind: TaskKind = _kinds[place]
        coro = kind.coro_of(task)
        coroutine = self._coroutine_name(coro)
        if type(coro) is _COROUTINE and (coro.cr_running or coro.cr_suspended):
            is_seen_late = True
        record = add(self._table, task)
        self._tasks_met += 1
        record.number = self._tasks_met
        record.kind = place
        record.name = coroutine
        record.made_ns = now
        record.is_late = is_seen_late
        self._fields[TASKS_MADE] += 1
        return record

    def _tell_made(self, record: Any, task: Any) -> None:
        """Write the event that a task was made, after its first step: its maker may name it until then."""
        record.is_told = True
        try:
            kind: TaskKind = _kinds[record.kind]
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
            free_record(record)
            record = following

    def _note_scheduled(self, entry: Runnable) -> None:
        """Note that an entry was put into the queue; only steps of tasks matter."""
        task = self._task_of(entry)
        if task is None or not self._is_open:
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
        self._fields[CALL_NAME] = record.name
        self._fields[CALL_TASK] = record.number

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
        if not record.is_told and (is_long or record.queued_ns >= 0):
            self._tell_made(record, task)
        if self._queued_ns >= 0 and (is_long or self._step_ns - self._queued_ns >= self._shortest_ns):
            self._put(self._queued_ns, 0, WAKE, 0, self._waker, record.number)
        if is_long:
            self._put(self._step_ns, units(took), STEP, 0, record.name, record.number)
        if record.queued_ns < 0:  # else it goes on
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
        kind: TaskKind = _kinds[record.kind]
        if not kind.is_done(task):
            if not record.is_told:
                self._tell_made(record, task)
            return
        flags = 0
        if kind.is_cancelled(task):
            flags = CANCELLED
        elif has_failed(kind.failure_of, task):
            flags = FAILED
        self._count_ended(record, now, flags)
        if record.is_told:
            self._put(now, 0, TASK_DONE, flags, record.name, record.number)
        take(self._table, record)
        free_record(record)

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

    # Callbacks.

    def _begin(self, entry: Runnable) -> None:
        """Note that an entry begins, at the end of the one before it."""
        self._in_call = True
        if not self._is_open:
            return
        task = self._task_of(entry)
        record = no_record()
        if task is not None:
            record = find(self._table, task)
            if not is_record(record):
                record = self._meet(task, self._last_ns, True)
        if is_record(record):
            self._begin_step(record, task, self._last_ns)
        else:
            self._fields[CALL_NAME] = self._name_of(entry)
            self._fields[CALL_TASK] = 0
        self._fields[CALL_BEGAN] = self._last_ns

    def _end(self, entry: Runnable, now: int) -> None:
        """Note that the entry has ended that began last."""
        if not self._in_call:
            return
        took = now - self._last_ns
        note_number(self._figures, CALLBACK_TIMES, took)
        self._in_call = False
        if is_record(self._current):
            self._end_step(now)
        elif took >= self._shortest_ns and self._is_open:
            self._put_callback(entry, took)
        self._last_ns = now

    def _put_callback(self, entry: Runnable, took: int) -> None:
        is_handle = not isinstance(entry, Callback) and hasattr(entry, "fileno")
        low = descriptor_of(entry) if is_handle else 0
        flags = IO if is_handle else 0
        self._put(self._last_ns, units(took), CALLBACK, flags, self._fields[CALL_NAME], low)

    def _put(self, at: int, took: int, kind: int, flags: int, high: int, low: int) -> None:
        """Write an event; `took` is in the units of events."""
        if self._is_open:
            self._recorder._put(at, took, kind, flags, self.number, (high << 32) | low)

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
        fields[UPDATED] = now
        fields[TURNS] = turns
        fields[EVENTS] = events
        fields[CALLBACKS] = callbacks
        fields[IDLE] = idle_ns
        fields[RUN_BEGAN] = run_began
        fields[RAN] = ran_ns
        fields[WAITING] = ready
        fields[TIMERS] = timers
        fields[OPEN_HANDLES] = handles
        if thread != self._thread:
            self._thread = thread
            fields[THREAD] = threading.get_native_id()
        if now - self._counted_ns >= COUNTERS_NS:
            self._write_counters(now, ready, idle_ns)

    def _batch_begins(self, poll_ended: int) -> int:
        """Note that entries begin to run, not before the last poll has ended; return the time."""
        if poll_ended > self._last_ns:
            self._last_ns = poll_ended
        return self._last_ns

    def _batch_ends(self) -> None:
        self._fields[CALL_BEGAN] = 0
        self._in_call = False

    def _turn_ends(self, now: int, entries: int) -> None:
        """Note the end of a turn; `entries` have run by now."""
        took = now - self._turn_ns - self._slept_ns
        if took >= self._shortest_ns:
            self._put(self._turn_ns, units(took), TURN, 0, 0, entries - self._entries_before)
        self._turn_ns = now
        self._slept_ns = 0
        self._entries_before = entries

    def _falls_asleep(self, now: int) -> None:
        self._fields[SLEEP_BEGAN] = now
        refresh_figures(self)

    def _has_slept(self, began: int, now: int, found: int, entries: int) -> None:
        self._fields[SLEEP_BEGAN] = 0
        self._last_ns = now
        if entries == self._entries_before:
            self._turn_ns = now
            self._slept_ns = 0
        else:
            self._slept_ns += now - began
        if now - began >= self._shortest_ns:
            self._put(began, units(now - began), POLL, 0, 0, found)

    def _timer_was_late(self, timer: Callback, now: int, late: int) -> None:
        if late >= LATE_NS and self._is_open:
            self._put(now - late, units(late), TIMER_LATE, 0, self._name_of(timer), 0)

    def _handle_changed(self, handle: Any, kind: int) -> None:
        """Note that a handle was opened or closed."""
        if self._is_open:
            self._handle_count += 1 if kind == HANDLE_OPENED else -1
            name = self._find_name(handle)
            self._put(self._kernel.now(), 0, kind, 0, name, descriptor_of(handle))

    def _measure_ticks(self, now: int) -> None:
        """Measure how long a tick is, from the last time on, which was long enough ago."""
        ticks = read_ticks()
        if self._measured_ns and ticks > self._measured_ticks:
            self._tick_ns = (now - self._measured_ns) / (ticks - self._measured_ticks)
        self._measured_ns, self._measured_ticks = now, ticks

    def _write_counters(self, now: int, ready: int, idle_ns: int) -> None:
        """Write the counters, as 10 ms have passed since the last time."""
        elapsed, asleep = now - self._counted_ns, idle_ns - self._idle_before
        if self._counted_ns:
            self._put(now, 0, READY, 0, 0, ready)
            self._put_total(now, BYTES_IN, self._figures.counters.bytes_in)
            self._put_total(now, BYTES_OUT, self._figures.counters.bytes_out)
            self._put(now, 0, HANDLES, 0, 0, max(0, self._handle_count))
            self._put(now, 0, UTILIZATION, 0, 0, 1000 - min(1000, 1000 * asleep // elapsed))
        self._counted_ns = now
        self._idle_before = idle_ns
        if self._has_ticks:
            self._measure_ticks(self._kernel.now())
        refresh_figures(self)

    def _put_total(self, now: int, kind: int, total: int) -> None:
        if self._is_open:
            self._recorder._put(now, 0, kind, 0, self.number, total)


def units(took: int) -> int:
    """Return a duration in the units of events."""
    return min(max(0, took) // TOOK_UNIT_NS, LONGEST_TOOK)


def number_in(name: Any) -> int:
    """Return N for the name `Task-N`, and -1 for others."""
    if type(name) is not str or not name.startswith("Task-"):
        return -1
    digits = name[5:]
    is_number = 0 < len(digits) < 10 and digits.isascii() and digits.isdigit()
    return int(digits) if is_number and (digits[0] != "0") else -1


def descriptor_of(handle: Any) -> int:
    """Return the descriptor of a handle as 32 bits, all of them set if it has none now."""
    number: Any = -1
    try:
        number = handle.fileno()
    except Exception:
        pass
    return int(number) & NO_DESCRIPTOR if type(number) is int else NO_DESCRIPTOR


_NAMED: frozenset[type] = frozenset(
    {types.FunctionType, types.BuiltinFunctionType, _COMPILED_FUNCTION, type(str.join), type}
)
