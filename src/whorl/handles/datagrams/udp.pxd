cimport cython
from libc cimport errno

from whorl.core cimport states
from whorl.core.callback cimport call_in_context, current_context
from whorl.core.handle cimport Handle
from whorl.handles.datagrams.engine cimport Datagrams
from whorl.handles.requests cimport RequestQueue, StreamRequest, contiguous


cdef class UdpSend(StreamRequest):
    cdef Py_ssize_t _size


cdef class UDP(Datagrams):
    cdef bint _connected
    cdef bint _reports_errors
    cdef object _receive_callback
    cdef readonly object _receive_context
    cdef RequestQueue _completed
    cdef Py_ssize_t _send_count
    cdef Py_ssize_t _send_size

    cdef object _datagram_arrived(self, object data, object address)
    cdef object _receive_failed(self, int code)
    cdef object _datagram_sent(self, tuple datagram)
    cdef object _datagram_failed(self, tuple datagram, int code)
    cdef object _datagram_refused(self, tuple datagram, object error)
    cdef bint _tries_again(self, int code) except -1
    cdef object _drop_unsent(self)
    cpdef object _on_events(self, int seen)
    cdef object _finish_close(self)

    cdef object _report_error(self, int code, object address)
    cdef object _take_reports(self)
    cdef object _prepare(self, object address)
    @cython.locals(request=UdpSend)
    cdef object _run_completed(self)


@cython.locals(request=UdpSend)
cdef UdpSend new_send(UDP handle, object callback)
