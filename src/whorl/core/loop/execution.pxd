cimport cython
from libc.stdint cimport int64_t

from whorl.core.callback cimport (
    Callback, GuardedCallback, Runnable, attempt, fetch, is_unshared, recycle_guarded, still_raised
)
from whorl.core.loop.write_coalescer cimport Collector
from whorl.core.handle cimport Handle
from whorl.core.lists cimport empty, only_one, taken
from whorl.core.loop.counters cimport LoopFigures

cdef Py_ssize_t ENTRIES_AHEAD


cdef class LoopBatches(LoopFigures):
    cdef readonly int64_t _passes
    cdef public object _watched_entry
    cdef public object _runner
    cdef readonly Collector _collector

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
        size=Py_ssize_t, done=Py_ssize_t, index=Py_ssize_t, watched=bint, entry=Runnable, collector=Collector,
        collects=bint
    )
    cdef object _run_batch(self, list batch, list queue)
    cdef object _entry_failed(self, Runnable entry, object error)
    @cython.locals(began=int64_t, took=int64_t)
    cdef object _run_watched(self, Runnable entry)
    cpdef object _run_entry(self, Runnable entry)


cdef object run_alone(LoopBatches loop, Callback entry)
cdef object attempt_failed(LoopBatches loop, Callback entry)
