cimport cython

from whorl.handles.stream cimport Stream

cdef extern from "Python.h":
    int PyContext_Enter(object context) except -1
    int PyContext_Exit(object context) except -1

cdef int LIFE_OPEN
cdef int OPEN
cdef int CLOSING
cdef int LOST
cdef int CLOSED
cdef int QUIET_WRITES
cdef Py_ssize_t READ_SIZE


cpdef object flat(object data)


cdef class StreamTransport(Stream):
    cdef public dict _extra
    cdef public object _protocol
    cdef public object _server
    cdef public object _empty_waiter
    cdef object _context
    cdef readonly int _state
    cdef bint _buffered
    cdef bint _started
    cdef bint _paused
    cdef bint _read_ended
    cdef bint _eof_written
    cdef bint _write_shut
    cdef readonly bint _protocol_paused
    cdef Py_ssize_t _high
    cdef Py_ssize_t _low
    cdef int _lost_writes

    @cython.locals(seen=int)
    cdef object _run(self)
    cdef object _read(self)
    cdef object _data_arrived(self, bytes data)
    cdef object _end_arrived(self)
    cdef object _read_failed(self, int code)
    cdef object _write_failed(self, int code)
    cdef object _sent_some(self)
    cdef object _sent_all(self)

    cdef object _check_writable(self, str method)
    cdef bint _is_lost(self) except -1
    cdef object _check_high_water(self)
    cdef object _pause_protocol(self)
    cdef object _resume_protocol(self)
    cpdef object _shut_write_side(self)
    cdef object _read_into_buffer(self)
    cpdef object _fatal_error(self, object error, str message=*)
    cpdef object _force_close(self, object error)
    cdef object _lose(self, object error)


cdef inline object events_in_context(StreamTransport transport, int seen):
    PyContext_Enter(transport._context)
    try:
        Stream._on_events(transport, seen)
    finally:
        PyContext_Exit(transport._context)
