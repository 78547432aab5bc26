from libc.stdint cimport int64_t

cimport cython

from whorl.sim.chance.decisions cimport Decisions, Scheduler, Stream

cdef object _name(object key)


cdef class Priorities(Scheduler):
    cdef set _changes
    cdef int64_t _depth
    cdef int64_t _picks
    cdef dict _priorities

    @cython.locals(changes=set, highest=int64_t, priorities=dict)
    cpdef int64_t pick(self, Decisions decisions, Stream stream, int64_t number, object keys) except? -1
    @cython.locals(place=int64_t, found=int64_t)
    cdef int64_t _highest(self, Decisions decisions, str stream, dict priorities, object keys) except? -1
