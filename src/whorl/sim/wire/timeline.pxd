from libc.stdint cimport int64_t


cdef class Timeline:
    cdef public int64_t now
    cdef int64_t _number
    cdef list _events

    cpdef object post(self, int64_t time, object act, tuple args)
    cpdef int64_t next_time(self) except? -1
    cpdef object happen(self)
