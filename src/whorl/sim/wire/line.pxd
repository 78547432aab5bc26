from libc.stdint cimport int64_t

cimport cython

from whorl.sim.chance.decisions cimport Stream


cdef int64_t REORDER_SPANS, SECOND, _LAST_STEP


cdef class Line:
    cdef int64_t _bandwidth
    cdef Stream _duplicate
    cdef double _duplicates
    cdef int64_t _free_at
    cdef Stream _latency
    cdef int64_t _longest
    cdef double _loses
    cdef Stream _loss
    cdef object _quality
    cdef Stream _reorder
    cdef double _reorders
    cdef double _varies
    cdef public int64_t blocked
    cdef public list held
    cdef readonly int64_t idle
    cdef public str name
    cdef public object packets
    cdef readonly int64_t shortest

    cdef object _set_up(self, object quality)
    cpdef object note(
        self, str kind, object sender, object receiver, int64_t size, int64_t now, int64_t took, object address=*
    )
    cpdef bint is_lost(self) except -1
    cpdef bint is_doubled(self) except -1
    cpdef int64_t overtaken(self) except? -1
    @cython.locals(span=int64_t, step=int64_t, took=int64_t)
    cpdef int64_t travel(self, int64_t now, int64_t size) except? -1
