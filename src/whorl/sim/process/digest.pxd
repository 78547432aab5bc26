cimport cython
from libc.stdint cimport int64_t

cdef extern from "whorl/sim/process/digest.h":
    bint write_call "whorl_write_call"(
        bytearray target, int64_t time, int64_t host, int64_t call, tuple details
    ) except -1

cdef int _BATCH, _FORMAT


cdef class Digest:
    cdef bytearray _bytes
    cdef object _hash
    cdef bint _is_plain
    cdef list _names
    cdef dict _numbers
    cdef int64_t _written
    cdef public object kept
    cdef public bint takes_lengths
    cdef readonly list tasks

    cpdef int64_t number(self, str name) except -1
    cpdef object add(self, int64_t time, int64_t host, str call, tuple details)
    cdef object _flush(self)
