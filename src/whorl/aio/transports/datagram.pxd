cimport cython
from libc cimport errno

from whorl.aio.transports cimport states
from whorl.core cimport states as handle_states
from whorl.handles.datagrams.engine cimport Datagrams

cdef extern from "Python.h":
    int PyContext_Enter(object context) except -1
    int PyContext_Exit(object context) except -1

cdef int QUIET_SENDS
cdef bint DROPS_EMPTY
cdef Py_ssize_t HEADER_SIZE


cdef class DatagramEndpoint(Datagrams):
    cdef public dict _extra
    cdef public object _protocol
    cdef public object _address
    cdef readonly object _context
    cdef readonly int _state
    cdef bint _connected
    cdef bint _started
    cdef readonly bint _paused
    cdef readonly bint _protocol_paused
    cdef Py_ssize_t _high
    cdef Py_ssize_t _low
    cdef readonly int _lost_sends

    @cython.locals(seen=int)
    cdef object _execute(self)
    cdef object _datagram_arrived(self, object data, object address)
    cdef object _receive_failed(self, int code)
    cdef object _receive_refused(self, object error)
    cdef object _datagram_failed(self, tuple datagram, int code)
    cdef object _datagram_refused(self, tuple datagram, object error)
    cdef object _sent_some(self)

    cdef bint _count_lost_write(self) except -1
    cdef bint _goes_to_peer(self, object address) except -1
    @cython.locals(sent=Py_ssize_t)
    cdef bint _sent_now(self, object data, object address) except -1
    cdef object _check_high_water(self)
    cpdef object _fatal_error(self, object error, str message=*)
    cpdef object _force_close(self, object error)
    cdef object _schedule_connection_lost(self, object error)
    cdef object _release_now(self)


cdef inline object events_in_context(DatagramEndpoint transport, int seen):
    PyContext_Enter(transport._context)
    try:
        Datagrams._on_events(transport, seen)
    finally:
        PyContext_Exit(transport._context)
