cdef class FdPassingCalls:
    pass
