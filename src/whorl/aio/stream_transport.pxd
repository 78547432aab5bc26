cimport cython

from whorl.aio.base_transports cimport BaseTransport, WriteTransport
from whorl.aio.stream_feed cimport StreamFeed

cdef int OPEN
cdef int CLOSING
cdef int LOST
cdef int QUIET_WRITES
cdef int AF_UNIX
cdef Py_ssize_t READ_SIZE


cdef class StreamTransport(WriteTransport):
    cdef public object _server
    cdef public object _empty_waiter
    cdef bint _buffered
    cdef StreamFeed _feed
    cdef bint _eof_written
    cdef bint _write_shut
    cdef tuple _kind
    cdef bytes _peer
    cdef object _own_name
    cdef readonly bint _is_made

    cdef object _read(self)
    @cython.locals(feed=StreamFeed)
    cdef object _data_arrived(self, bytes data)
    cdef object _end_arrived(self)
    cdef object _read_failed(self, int code)
    cdef object _write_failed(self, int code)
    cdef object _sent_all(self)
    cdef object _check_writable(self, str method)
    cdef bint _is_lost(self) except -1
    cpdef int _shut_write_side(self) except? -65536
    cpdef object _socket(self)
    cdef object _begin_life(self, object protocol, object waiter)
    cdef object _disown(self)
    cdef object _read_into_buffer(self)
