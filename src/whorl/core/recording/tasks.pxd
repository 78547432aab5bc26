cimport cython
from libc.stdint cimport int64_t, uintptr_t

from whorl.core.callback cimport Callback, GuardedCallback, Runnable, call_with_one, thread_ident
from whorl.core.recording cimport layout
from whorl.core.recording.names cimport type_key
from whorl.core.recording.recorder cimport units
from whorl.core.recording.slot cimport tell_call, time_of
from whorl.core.recording.steps cimport TaskKind, ask, kind_for, stepped_by, stepped_by_entry
from whorl.core.recording.task_table cimport (
    EndedRow, Record, TaskTable, add_newest, drop, failure_of, find, free_record, is_full, is_record, name_of, no_record,
    state_of, take_dead
)
from whorl.core.threads cimport HAS_GIL

cdef extern from "whorl/core/recording/tasks.h":
    int64_t number_in "whorl_number_in"(object name) noexcept

cdef Py_ssize_t MOST_ENDED
cdef int64_t UNTOLD_NS
cdef object _COROUTINE
cdef object _SUSPENDED
cdef object _PENDING
cdef object _FINISHED
cdef object _CANCELLED


cdef class LoopTasks(TaskTable):
    cdef int64_t _tasks_met
    cdef dict _ended
    cdef dict _types
    cdef object _last_type
    cdef TaskKind _last_kind
    cdef int64_t _last_ns
    cdef Record _current
    cdef object _current_task
    cdef int64_t _step_ns
    cdef int64_t _queued_ns
    cdef int64_t _waker
    cdef uintptr_t _plain_type
    cdef unsigned long _thread
    cdef int64_t _last_ended
    cdef EndedRow _last_row

    @cython.locals(kind=uintptr_t)
    cdef object _task_of(self, Runnable entry)
    cdef TaskKind _kind_for(self, object cls)
    cdef int _find_kind(self, object cls) except -1
    @cython.locals(kind=TaskKind, name=int64_t, record=Record, fields="int64_t *")
    cdef Record _meet(self, object task, int64_t now, bint is_late) except? NULL
    @cython.locals(number=int64_t, name=int64_t, flags=int)
    cdef int _tell_made(self, Record record, object task) except -1
    @cython.locals(record=Record, following=Record)
    cdef object _drop_dead(self, int64_t now)
    cdef int _note_scheduled(self, Runnable entry) except -1
    @cython.locals(now=int64_t, record=Record)
    cdef int _note_queued(self, object task) except -1
    cdef int _note_wake(self, Record record) except -1
    @cython.locals(row=EndedRow, fields="int64_t *")
    cdef int _count_ended(self, Record record, int64_t now, int flags) except -1
    @cython.locals(name=int64_t)
    cdef EndedRow _row_of(self, Record record)
    cdef int _begin_step(self, Record record, object task, int64_t now) except -1
    @cython.locals(
        record=Record, took=int64_t, is_long=bint, goes_on=bint, waited=bint, queued=int64_t, fields="int64_t *"
    )
    cdef int _end_step(self, int64_t now) except -1
    cdef int _look_for_end(self, Record record, object task, int64_t now) except -1
    cdef int _note_wait(self, Record record, object task) except -1
    cdef int _end_task(self, Record record, int64_t now, int flags) except -1
    @cython.locals(
        outer=Record, record=Record, began=int64_t, queued=int64_t, waker=int64_t, name=int64_t,
        number=int64_t, now=int64_t
    )
    cdef object _run_step(self, object context, object called, object argument)
