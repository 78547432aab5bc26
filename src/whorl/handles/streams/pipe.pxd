from whorl.core cimport states
from whorl.core.pollers.contract cimport IOHandle
from whorl.handles.streams.engine cimport Stream, count_sent
from whorl.handles.requests cimport Connect, Write, new_write
from whorl.handles.requests cimport contiguous
from whorl.handles.streams.stream_handle cimport StreamHandle
from whorl.handles.streams.tcp cimport TCP
from whorl.handles.datagrams.udp cimport UDP


cdef class Pipe(StreamHandle):
    cdef object _bound_path
    cdef readonly bint _ipc
    cdef bint _some_lost
    cdef list _received
    cdef list _outgoing

    cdef object _attach_socket(self, object sock)
    cdef object _to_send(self, object data, object handle)
    cdef Py_ssize_t _send_first(self) except? -65536
    cdef object _drop_unsent(self)
    cdef object _read(self)
    cdef Py_ssize_t _fill(self, object buffer) except? -65536
    cdef object _read_message(self)
    cpdef object _release(self)
