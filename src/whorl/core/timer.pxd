from libc.stdint cimport int64_t

cimport cython
from libc.math cimport ceil

from whorl.core.callback cimport Callback, Owner, copy_context

cdef double NEVER_FLOAT
cdef int64_t NOT_A_TIME
cdef int64_t NEVER_NS
cdef Py_ssize_t SWEEP_MIN_CANCELLED
cdef Py_ssize_t SWEEP_FRACTION


cdef inline int64_t ceil_ns(double seconds) noexcept:
    return <int64_t>ceil(seconds * 1e9)


cpdef int64_t deadline_of(object when) except? -1
cdef double seconds_of(object when) except? -1
cdef int64_t deadline_at(double seconds) noexcept


cdef inline double ordered(double seconds) noexcept:
    return seconds if seconds == seconds else 0.0


cdef inline bint before(TimedCallback a, TimedCallback b) except -1:
    if a._deadline_ns != b._deadline_ns:
        return a._deadline_ns < b._deadline_ns
    if a._seconds < b._seconds:
        return True
    if b._seconds < a._seconds:
        return False
    return a._number < b._number


cdef class TimedCallback(Callback):
    cdef readonly int64_t _deadline_ns
    cdef readonly double _seconds
    cdef readonly int64_t _number
    cdef public object _when
    cdef public bint _scheduled

    cpdef object _unschedule(self)


cdef class TimerHeap:
    cdef list _entries
    cdef readonly Py_ssize_t _cancelled
    cdef readonly Py_ssize_t _keepers
    cdef int64_t _numbers

    @cython.locals(heap=list, position=Py_ssize_t, parent=Py_ssize_t, above=TimedCallback)
    cdef object push(self, TimedCallback timer)
    @cython.locals(top=TimedCallback)
    cdef TimedCallback _top(self)
    @cython.locals(heap=list, top=TimedCallback)
    cdef TimedCallback _pop(self)
    @cython.locals(top=TimedCallback)
    cdef object take_due(self, int64_t now_ns, list into)
    cdef int64_t next_deadline(self) except? -1
    cdef object _drop_cancelled_top(self)
    cdef object note_cancelled(self, TimedCallback timer)
    cdef object clear(self)
    @cython.locals(kept=list, timer=TimedCallback, position=Py_ssize_t)
    cdef object _sweep(self)
    @cython.locals(heap=list, size=Py_ssize_t, child=Py_ssize_t, timer=TimedCallback, below=TimedCallback,
                   right=TimedCallback)
    cdef object _sift_down(self, Py_ssize_t position)


@cython.locals(timer=TimedCallback, seconds=double)
cpdef TimedCallback new_timer(Owner loop, object when, object callback, tuple args, object context)
@cython.locals(timer=TimedCallback)
cpdef TimedCallback new_handle_timer(Owner loop, int64_t deadline_ns, object callback, tuple args, object context)
@cython.locals(timer=TimedCallback)
cdef TimedCallback blank_timer(Owner loop, object callback, tuple args, object context)


cpdef TimerHeap new_heap()
