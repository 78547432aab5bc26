cimport cython
from libc.stdint cimport int64_t

from whorl.core.callback cimport (
    Callback, GuardedCallback, Runnable, attempt, current_thread, fetch, is_unshared, recycle_guarded, still_raised
)
from whorl.core.handle cimport Handle
from whorl.core.lists cimport empty, last_taken, only_one, taken
from whorl.core.loop_figures cimport LoopFigures

cdef Py_ssize_t ENTRIES_AHEAD
cdef int64_t LONGEST_COLLECTED_TICKS
cdef int BY_TURN


cdef class LoopBatches(LoopFigures):
    cdef readonly int64_t _passes
    cdef public object _watched_entry
    cdef public object _runner
    cdef list _holding
    cdef int64_t _holding_since

    cdef object _set_up(self, object kernel, object host)
    @cython.locals(batch=list, entry=Callback)
    cdef object _run_ready(self)
    @cython.locals(batch=list)
    cdef object _run_pending(self)
    @cython.locals(due=list)
    cdef object _run_timers(self)
    @cython.locals(closing=list, handle=Handle)
    cdef object _run_closing(self)
    @cython.locals(
        size=Py_ssize_t, done=Py_ssize_t, index=Py_ssize_t, before=int64_t, watched=bint,
        entry=Runnable
    )
    cdef object _run_batch(self, list batch, list queue)
    @cython.locals(waited=int64_t)
    cdef object _callback_held(self, bint is_last)
    cdef bint _hold(self, Runnable handle) except -1
    cpdef object _send_held(self)
    @cython.locals(handle=Handle)
    cdef object _tell_holding(self)
    cdef object _entry_failed(self, Runnable entry, object error)
    @cython.locals(began=int64_t, took=int64_t)
    cdef object _run_watched(self, Runnable entry)
    cpdef object _run_entry(self, Runnable entry)


cdef object run_alone(LoopBatches loop, Callback entry)
cdef object attempt_failed(LoopBatches loop, Callback entry)
cdef object send_held_by(LoopBatches loop, Callback entry)
