from whorl.handles.streams.stream_handle cimport StreamHandle


cdef class TTY(StreamHandle):
    cdef object _mode
    cdef object _original

    cpdef object _release(self)
