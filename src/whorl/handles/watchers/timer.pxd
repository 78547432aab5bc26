from libc.stdint cimport INT64_MAX, int64_t

cimport cython

from whorl.core cimport limits
from whorl.core.callback cimport call_with_one, current_context
from whorl.core.handle cimport Handle
from whorl.core.loop.loop cimport Loop
from whorl.core.timers.timed_callback cimport TimedCallback


cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1


cdef inline int64_t within_64_bits(object value) except? -1:
    cdef int overflow = 0
    cdef int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow)
    return number if overflow == 0 else overflow * INT64_MAX


@cython.locals(nanoseconds=int64_t)
cdef int64_t duration(object value) except -1


cdef class Timer


cdef class TimerEntry(TimedCallback):
    cdef Timer _timer

    @cython.locals(timer=Timer)
    cdef object _execute(self)
    cdef object _give_up(self)


cdef class Timer(Handle):
    cdef object _callback
    cdef readonly object _context
    cdef TimerEntry _entry
    cdef bint _is_started
    cdef int64_t _repeat_ns

    @cython.locals(timeout=int64_t)
    cpdef object start(self, object callback, object timeout_ns, object repeat_ns=*)
    @cython.locals(entry=TimerEntry)
    cpdef object stop(self)
    @cython.locals(loop=Loop, entry=TimerEntry, now_ns=int64_t, deadline=int64_t)
    cdef object _arm(self, int64_t timeout_ns)
    cdef object _fall_due(self)
    cpdef object _release(self)


@cython.locals(entry=TimerEntry)
cdef TimerEntry new_entry(Timer timer)
