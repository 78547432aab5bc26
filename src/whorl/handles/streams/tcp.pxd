from whorl.handles.requests cimport Connect
from whorl.handles.streams.stream_handle cimport StreamHandle


cdef class TCP(StreamHandle):
    cdef object _nodelay
    cdef object _keepalive

    cdef object _attach_socket(self, object sock)
    cdef object _ensure_socket(self, object family)
    cdef object _set(self, object level, object option, object value)
