from libc.stdint cimport int64_t

cimport cython

from whorl.sim.chance.decisions cimport Stream


cdef class Line:
    cdef Stream _duplicate
    cdef int64_t _free_at
    cdef Stream _latency
    cdef Stream _loss
    cdef Stream _reorder
    cdef public int64_t blocked
    cdef public list held
    cdef public str name
    cdef public object quality

    cpdef bint is_lost(self) except -1
    @cython.locals(shortest=int64_t, span=int64_t, step=int64_t, took=int64_t)
    cpdef int64_t travel(self, int64_t now, int64_t size) except? -1
