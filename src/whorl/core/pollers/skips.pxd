cimport cython
from libc.stdint cimport int64_t

from whorl.core cimport limits


@cython.final
cdef class PollSkips:
    cdef public bint is_possible
    cdef public int64_t polled_at
    cdef int _empty_polls
    cdef bint _is_single
    cdef bint _has_one_event
    cdef int _skipped

    cpdef object expect_events(self)
    cpdef object found_nothing(self)
    cpdef object found_wakeup(self)
    cpdef object found_one_event(self)
    cpdef object event_taken(self)
    @cython.locals(is_single=bint)
    cpdef bint take_single(self) except -1
    cpdef bint count_skip(self) except -1
