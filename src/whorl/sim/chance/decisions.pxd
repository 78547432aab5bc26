from libc.stdint cimport int64_t, uint64_t

cimport cython

cdef extern from "whorl/sim/chance/decisions.h":
    uint64_t split "whorl_split"(uint64_t base, uint64_t count) noexcept nogil
    int64_t drawn "whorl_drawn"(uint64_t base, uint64_t number, double p, int64_t n) noexcept nogil


cpdef object mixed(object base, object count)


cdef class Stream:
    cdef Decisions _decisions
    cdef readonly str name
    cdef public int64_t count
    cdef uint64_t _base
    cdef bint _has_base

    cpdef int64_t draw(self, int64_t number, double p, int64_t n) except? -1
    @cython.locals(number=int64_t, value=int64_t, decisions=Decisions)
    cpdef int64_t decide(self, int64_t n, double p=*) except? -1
    cpdef bint happens(self, double p) except -1


cdef class Decisions:
    cdef public object seed
    cdef public object tape
    cdef public object variant
    cdef public double thinned
    cdef public dict taken
    cdef public dict moments
    cdef public list asked
    cdef public object clock
    cdef public Scheduler schedule
    cdef dict _streams

    cpdef Stream stream(self, str name)
    @cython.locals(stream=Stream, number=int64_t, value=int64_t, size=int64_t)
    cpdef int64_t pick(self, str name, list keys) except? -1
    cpdef object take(self, str name, int64_t number, int64_t value, object among)


cdef class Scheduler:
    cdef public object cpu_model
    cdef public double p

    cpdef int64_t pick(self, Decisions decisions, Stream stream, int64_t number, object keys) except? -1
