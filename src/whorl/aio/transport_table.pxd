cdef class TransportTable:
    cdef dict _known

    cpdef object add(self, int fd, object transport)
    cpdef object discard(self, int fd, object transport)
    cpdef object get(self, int fd)
