cdef extern from "whorl/sim/process/digest.h":
    bytes shown "whorl_shown"(list calls)

cdef int _BATCH


cdef class Digest:
    cdef list _calls
    cdef object _hash
    cdef public object count
    cdef public object kept
    cdef public bint takes_lengths
    cdef readonly list tasks

    cpdef object add(self, tuple call)
