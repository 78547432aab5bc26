cimport cython
from libc.stdint cimport int64_t

from whorl.core cimport limits


@cython.final
cdef class PollSkips:
    cdef public bint is_possible
    cdef public int64_t polled_at
    cdef public bint is_single
    cdef public int skipped
    cdef int _empty_polls
    cdef bint _has_one_event

    cpdef object expect_events(self)
    cpdef object found_nothing(self)
    cpdef object found_wakeup(self)
    cpdef object found_one_event(self)
    cpdef object event_taken(self)
