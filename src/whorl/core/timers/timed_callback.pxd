from libc.stdint cimport int64_t

cimport cython
from libc.math cimport ceil

from whorl.core cimport limits
from whorl.core.callback cimport AbstractLoop, Callback, snapshot_context

cdef double NEVER_FLOAT
cdef int64_t NOT_A_TIME


cdef inline int64_t ceil_ns(double seconds) noexcept:
    return <int64_t>ceil(seconds * 1e9)


cpdef int64_t deadline_of(object when) except? -1
cpdef double seconds_of(object when) except? -1
cdef int64_t deadline_at(double seconds) noexcept


cdef inline double ordered(double seconds) noexcept:
    return seconds if seconds == seconds else 0.0


cdef class TimedCallback(Callback):
    cdef readonly int64_t _deadline_ns
    cdef readonly double _seconds
    cdef readonly int64_t _number
    cdef object _given_when
    cdef bint _keeps_alive
    cdef public bint _scheduled

    cdef object _unschedule(self)
    cdef object _fell_due(self)


@cython.locals(timer=TimedCallback, seconds=double)
cpdef TimedCallback new_timer(AbstractLoop loop, object when, object callback, tuple args, object context)


@cython.locals(timer=TimedCallback)
cpdef TimedCallback new_timer_at(AbstractLoop loop, double seconds, object callback, tuple args, object context)


@cython.locals(now=double, seconds=double)
cpdef TimedCallback new_timer_after(
    AbstractLoop loop, int64_t now_ns, object delay, object callback, tuple args, object context
)
