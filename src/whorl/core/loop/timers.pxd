cimport cython
from libc.stdint cimport int64_t

from whorl.core.callback cimport Runnable
from whorl.core.loop.handles cimport LoopHandles
from whorl.core.timers.timed_callback cimport TimedCallback, deadline_of
from whorl.core.timers.heap cimport TimerHeap

cdef int64_t NEVER_NS
cdef int64_t LONGEST_POLL_NS


cdef class LoopTimers(LoopHandles):
    cdef public object _clock_function
    cdef readonly TimerHeap _timer_queue
    cdef int64_t _now_ns
    cdef public bint _time_replaced
    cdef public bint _follows_patch

    cdef object _set_up(self, object kernel, object host)
    cdef int64_t _clock(self) except? -1
    cdef object _schedule(self, TimedCallback timer)
    cdef object _timer_cancelled(self, Runnable timer)
    @cython.locals(collected=Py_ssize_t, limit=int64_t, timer=TimedCallback)
    cdef object _collect_timers(self, list into)
    @cython.locals(deadline=int64_t)
    cdef int64_t _until_next_timer(self, int64_t now_ns) except -2
