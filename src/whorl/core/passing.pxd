cdef class PassingCalls:
    pass
