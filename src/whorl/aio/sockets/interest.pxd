cimport cython

cdef int EDGE
cdef int IDLE
cdef int SHARED
cdef int OTHER
cdef int TCP
cdef int CALLBACKS
cdef int READS
cdef int WRITES
cdef int SENDER
cdef int READABLE
cdef int WRITABLE
cdef int READABLE_EDGES


@cython.locals(edge=bint, wanted=int)
cpdef int interest(int kind, int waiting, int former, bint has_edges) except -1
