from whorl.handles.stream_handle cimport Connect, StreamHandle


cdef class Pipe(StreamHandle):
    cdef object _bound_path

    cdef object _adopt(self, object sock)
    cpdef object _release(self)
