cdef set _GUARDED

cpdef object guard(str event, object args)
