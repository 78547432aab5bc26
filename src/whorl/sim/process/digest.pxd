cdef int _BATCH, _FORMAT

cdef bytes _as_bytes(list calls)
cdef bytes _one_as_bytes(tuple call)


cdef class Digest:
    cdef list _calls
    cdef list _names
    cdef dict _numbers
    cdef object _hash
    cdef public object count
    cdef public object kept
    cdef public bint takes_lengths
    cdef readonly list tasks

    cpdef object number(self, str name)
    cpdef object add(self, tuple call)
