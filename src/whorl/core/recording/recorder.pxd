cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uintptr_t
from libc.string cimport memset

from whorl.core.callback cimport Callback, GuardedCallback, Runnable, call_with_one
from whorl.core.figures cimport Block, Figures, move_back, move_into, note as note_number
from whorl.core.kernel.kernel cimport Kernel
from whorl.core.recording.task_table cimport (
    Record, TaskTable, add, find, free_record, is_full, is_record, no_record, take, take_dead
)

cdef extern from "whorl/core/recording/recorder.h":
    void write_event "whorl_put_event"(
        int64_t *place, int64_t *written, int64_t at, int64_t took, int kind, int flags, int64_t loop, int64_t subject
    ) noexcept

cdef extern from "whorl/core/kernel/kernel.h":
    int64_t read_ticks "whorl_read_ticks"() noexcept nogil

cdef extern from "whorl/core/recording/tasks.h":
    uintptr_t type_key "whorl_type_key"(object thing) noexcept
    bint learn_step "whorl_learn_step"(object step, object task) noexcept
    void learn_method "whorl_learn_method"(object function) noexcept
    bint has_failed "whorl_has_failed"(object failure_of, object task) except -1
    bint may_step "whorl_may_step"(object called) noexcept
    object stepped_by "whorl_stepped_by"(object called)
    uintptr_t key_of "whorl_key_of"(object called) noexcept

cdef enum:
    PLACES_OF_NAMES = 512
    ROOM_FOR_FIELDS = 32

cdef int FIELDS
cdef int UPDATED
cdef int TURNS
cdef int EVENTS
cdef int CALLBACKS
cdef int IDLE
cdef int RUN_BEGAN
cdef int RAN
cdef int WAITING
cdef int TIMERS
cdef int OPEN_HANDLES
cdef int STATE
cdef int NUMBER
cdef int THREAD
cdef int SLEEP_BEGAN
cdef int CALL_BEGAN
cdef int CALL_NAME
cdef int CALL_TASK
cdef int TASKS_MADE
cdef int TASKS_DONE
cdef int STEPS
cdef int OPEN
cdef int CLOSED
cdef int TURN
cdef int POLL
cdef int CALLBACK
cdef int CALLBACK_TIMES
cdef int STEP
cdef int WAKE
cdef int TASK_MADE
cdef int TASK_DONE
cdef int TIMER_LATE
cdef int READY
cdef int BYTES_IN
cdef int BYTES_OUT
cdef int HANDLES
cdef int UTILIZATION
cdef int HANDLE_OPENED
cdef int HANDLE_CLOSED
cdef int CANCELLED
cdef int FAILED
cdef int IO
cdef int WATCHED_LATE
cdef int EVENT_WORDS
cdef int TOOK_UNIT_NS
cdef int64_t LONGEST_TOOK
cdef int WRITTEN
cdef int64_t LATE_NS
cdef int64_t COUNTERS_NS
cdef int64_t LONGEST_BY_TICKS
cdef Py_ssize_t MOST_ENDED
cdef Py_ssize_t NAMES_KEPT
cdef list _kinds
cdef dict _places
cdef object _PARTIAL
cdef object _COROUTINE
cdef object _GENERATOR
cdef object _METHOD
cdef object _FUNCTION
cdef object _BUILTIN
cdef object _COMPILED_FUNCTION
cdef object _NAMED

cdef int64_t units(int64_t took) noexcept


cdef class TaskKind:
    cdef object name_of
    cdef object coro_of
    cdef object is_done
    cdef object is_cancelled
    cdef object failure_of


cdef class Recorder:
    cdef object __weakref__
    cdef object _view
    cdef int64_t *_words
    cdef int64_t _loops_at
    cdef int64_t _names_at
    cdef int64_t _stalls_at
    cdef int64_t _ring_at
    cdef int64_t _names_size
    cdef int64_t _stall_count
    cdef int64_t _event_count
    cdef readonly int64_t shortest_ns
    cdef int64_t _place
    cdef dict _name_ids
    cdef Kernel _kernel
    cdef list _open
    cdef int64_t _loops_opened
    cdef int64_t _last_name

    cdef object _check(self)
    cpdef int64_t name_id(self, str text) except -1
    cdef object _name_text(self, int64_t number)
    cdef int _put(self, int64_t at, int64_t took, int kind, int flags, int64_t loop, int64_t subject) except -1


cdef class EndedRow:
    cdef str _coroutine
    cdef int64_t _tasks
    cdef int64_t _cancelled
    cdef int64_t _failed
    cdef int64_t _steps
    cdef int64_t _busy_ns
    cdef int64_t _scheduled_ns
    cdef int64_t _idle_ns
    cdef int64_t _longest_ns
    cdef int64_t _wakes
    cdef int64_t _self_wakes

    cdef object _add(self, Record record, int64_t now, int flags)


cdef struct KnownName:
    uintptr_t key
    int64_t name


cdef class LoopRecorder:
    cdef object __weakref__
    cdef Recorder _recorder
    cdef bint _is_open
    cdef int64_t _slot
    cdef int64_t _slot_at
    cdef readonly int64_t number
    cdef Kernel _kernel
    cdef Figures _figures
    cdef int64_t _shortest_ns
    cdef TaskTable _table
    cdef int64_t _tasks_met
    cdef dict _ended
    cdef dict _types
    cdef dict _kept
    cdef KnownName _cache[PLACES_OF_NAMES]
    cdef int64_t _own_fields[ROOM_FOR_FIELDS]
    cdef bint _in_call
    cdef int64_t _last_ns
    cdef Record _current
    cdef object _current_task
    cdef int64_t _step_ns
    cdef int64_t _queued_ns
    cdef int64_t _waker
    cdef bint _in_machine_turn
    cdef int64_t _turn_ns
    cdef int64_t _slept_ns
    cdef int64_t _entries_before
    cdef int64_t _counted_ns
    cdef int64_t _idle_before
    cdef int64_t _handle_count
    cdef unsigned long _thread
    cdef int64_t *_fields
    cdef int64_t _published_ns
    cdef bint _has_ticks
    cdef double _tick_ns
    cdef int64_t _base_ns
    cdef int64_t _base_ticks
    cdef int64_t _measured_ns
    cdef int64_t _measured_ticks
    cdef uintptr_t _plain_type
    cdef uintptr_t _last_key
    cdef int64_t _last_name
    cdef int64_t _last_ended
    cdef EndedRow _last_row

    cpdef object _leave_slot(self)
    @cython.locals(called=object, callback=Callback, key=uintptr_t, name=int64_t)
    cdef int64_t _name_of(self, Runnable entry) except -1
    @cython.locals(name=int64_t)
    cdef int64_t _find_name(self, object called) except -1
    @cython.locals(key=uintptr_t)
    cdef int64_t _look_up_name(self, object called) except -1
    @cython.locals(name=int64_t)
    cdef int64_t _new_name(self, uintptr_t key, object kept, object named) except -1
    cdef int64_t _coroutine_name(self, object coro) except -1
    @cython.locals(callback=Callback, kind=uintptr_t)
    cdef object _task_of(self, Runnable entry)
    cdef int _kind_place(self, object kind) except -2
    @cython.locals(record=Record)
    cdef Record _meet(self, object task, int64_t now, bint is_seen_late) except? NULL
    @cython.locals(place=int, kind=TaskKind, coroutine=int64_t, record=Record)
    cdef Record _new_record(self, object task, int64_t now, bint is_seen_late) except? NULL
    @cython.locals(kind=TaskKind, number=int64_t, name=int64_t, flags=int)
    cdef object _tell_made(self, Record record, object task)
    @cython.locals(record=Record, following=Record)
    cdef object _drop_dead(self, int64_t now)
    @cython.locals(now=int64_t, record=Record)
    cdef object _note_scheduled(self, Runnable entry)
    cdef int _note_wake(self, Record record) except -1
    @cython.locals(name=int64_t)
    cdef EndedRow _row_of(self, Record record)
    cdef object _count_ended(self, Record record, int64_t now, int flags)
    cdef int _begin_step(self, Record record, object task, int64_t now) except -1
    @cython.locals(record=Record, took=int64_t, is_long=bint)
    cdef object _end_step(self, int64_t now)
    cdef object _look_for_end(self, Record record, object task, int64_t now)
    @cython.locals(kind=TaskKind, flags=int)
    cdef object _end_task(self, Record record, object task, int64_t now)
    @cython.locals(
        outer=Record, record=Record, began=int64_t, queued=int64_t, waker=int64_t, name=int64_t,
        number=int64_t, now=int64_t
    )
    cdef object _run_step(self, object context, object called, object argument)
    @cython.locals(record=Record)
    cdef object _begin(self, Runnable entry)
    @cython.locals(took=int64_t)
    cdef object _end(self, Runnable entry, int64_t now)
    @cython.locals(is_handle=bint, low=int64_t, flags=int)
    cdef object _put_callback(self, Runnable entry, int64_t took)
    cdef int _put(self, int64_t at, int64_t took, int kind, int flags, int64_t high, int64_t low) except -1
    @cython.locals(fields="int64_t *")
    cdef object _publish(
        self, int64_t now, unsigned long thread, int64_t turns, int64_t events, int64_t callbacks, int64_t idle_ns,
        int64_t run_began, int64_t ran_ns, int64_t ready, int64_t timers, int64_t handles
    )
    cdef int64_t _batch_begins(self, int64_t poll_ended) except? -1
    cdef int _batch_ends(self) except -1
    @cython.locals(took=int64_t)
    cdef int _turn_ends(self, int64_t now, int64_t entries) except -1
    cdef int _falls_asleep(self, int64_t now) except -1
    cdef int _has_slept(self, int64_t began, int64_t now, int64_t found, int64_t entries) except -1
    cdef object _timer_was_late(self, Callback timer, int64_t now, int64_t late)
    @cython.locals(name=int64_t)
    cdef object _handle_changed(self, object handle, int kind)
    @cython.locals(ticks=int64_t)
    cdef int _measure_ticks(self, int64_t now) except -1
    @cython.locals(elapsed=int64_t, asleep=int64_t)
    cdef object _write_counters(self, int64_t now, int64_t ready, int64_t idle_ns)
    cdef int _put_total(self, int64_t now, int kind, int64_t total) except -1


cdef inline int begin_memory(Recorder recorder) except -1:
    # The view keeps the memory; a second buffer of it only tells the address.
    cdef Py_buffer memory
    PyObject_GetBuffer(recorder._view, &memory, PyBUF_WRITABLE)
    recorder._words = <int64_t *>memory.buf
    PyBuffer_Release(&memory)
    if <uintptr_t>recorder._words % 8:
        raise ValueError("the memory of a recording begins at a multiple of 8")
    return 0


cdef inline int begin_fields(LoopRecorder opened) except -1:
    opened._fields = opened._recorder._words + opened._slot_at // 8
    return 0


cdef inline int end_fields(LoopRecorder opened) except -1:
    opened._fields = &opened._own_fields[0]
    return 0


cdef inline int move_figures(LoopRecorder opened) except -1:
    return move_into(opened._figures, <Block *>(opened._recorder._words + (opened._slot_at + 512) // 8))


cdef inline int refresh_figures(LoopRecorder opened) noexcept:
    return 0


cdef inline int put_event(
    Recorder recorder, int64_t at, int64_t took, int kind, int flags, int64_t loop, int64_t subject
) except -1:
    write_event(
        recorder._words + recorder._ring_at // 8 + EVENT_WORDS * recorder._place,
        recorder._words + WRITTEN, at, took, kind, flags, loop, subject
    )
    return 0


cdef inline KnownName *known_place(LoopRecorder recorder, uintptr_t key) noexcept:
    return &recorder._cache[((key >> 4) ^ (key >> 13)) & (PLACES_OF_NAMES - 1)]


cdef inline int64_t known_name(LoopRecorder recorder, uintptr_t key) noexcept:
    cdef KnownName *known = known_place(recorder, key)
    return known.name if known.key == key else 0


cdef inline int keep_name(LoopRecorder recorder, uintptr_t key, int64_t name) noexcept:
    cdef KnownName *known = known_place(recorder, key)
    known.key = key
    known.name = name
    return 0


cdef inline int forget_names(LoopRecorder recorder) noexcept:
    recorder._last_key = 0
    memset(&recorder._cache[0], 0, sizeof(recorder._cache))
    return 0


cdef inline bint may_be_step(Runnable entry) noexcept:
    if type(entry) is Callback:
        return may_step((<Callback>entry)._callback)
    return True


cdef inline int64_t time_of(LoopRecorder recorder) except? -1:
    # Since the base, by ticks. Not if that is long, nor if the counter jumped.
    cdef int64_t ticks, passed
    if recorder._tick_ns <= 0:
        return recorder._kernel.now()
    ticks = read_ticks()
    passed = <int64_t>(<double>(ticks - recorder._base_ticks) * recorder._tick_ns)
    if 0 <= passed < LONGEST_BY_TICKS:
        return recorder._base_ns + passed
    recorder._base_ticks = ticks
    recorder._base_ns = recorder._kernel.now()
    return recorder._base_ns
