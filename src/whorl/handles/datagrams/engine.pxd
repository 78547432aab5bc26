cimport cython

from libc cimport errno
from libc.stdint cimport int64_t

from whorl.core cimport limits, states
from whorl.core.figures cimport Counters
from whorl.core.kernel.datagrams cimport DatagramSocket
from whorl.core.kernel.kernel cimport Kernel
from whorl.core.loop.held_writes cimport HeldWrites
from whorl.core.pollers.contract cimport IOHandle, Poller


cdef class Datagrams(IOHandle):
    cdef Kernel _kernel
    cdef Poller _poller
    cdef HeldWrites _held
    cdef public object _sock
    cdef readonly int _attached_fd
    cdef DatagramSocket _socket
    cdef bint _reading
    cdef list _arrived
    cdef Py_ssize_t _next
    cdef Py_ssize_t _batch
    cdef readonly list _queue
    cdef readonly Py_ssize_t _first
    cdef readonly Py_ssize_t _unsent
    cdef Py_ssize_t _header
    cdef readonly int64_t _received_total
    cdef readonly int64_t _read_calls
    cdef readonly int64_t _sent_total
    cdef readonly int64_t _write_calls

    # The sink: methods that a subclass overrides.
    cdef object _datagram_arrived(self, object data, object address)
    cdef object _receive_failed(self, int code)
    cdef object _receive_refused(self, object error)
    cdef object _datagram_sent(self, tuple datagram)
    cdef object _datagram_failed(self, tuple datagram, int code)
    cdef object _datagram_refused(self, tuple datagram, object error)
    cdef object _sent_some(self)
    cdef bint _tries_again(self, int code) except -1

    # The engine.
    cdef object _attach(self, object sock)
    cpdef object _release(self)
    cdef object _drop_unsent(self)
    cdef object _update_interest(self)
    cpdef object _on_events(self, int seen)
    cdef object _run_again(self)
    cdef object _start_reading(self)
    cdef object _stop_reading(self)
    @cython.locals(counters="Counters *")
    cdef object _count_sent(self, Py_ssize_t size)
    @cython.locals(counters="Counters *")
    cdef object _count_received(self, Py_ssize_t size)
    @cython.locals(count=Py_ssize_t, place=Py_ssize_t, size=Py_ssize_t, arrived=list)
    cdef object _receive(self)
    cdef object _enqueue(self, object data, object address, object extra)
    @cython.locals(refused=bint, sent=Py_ssize_t, waiting=Py_ssize_t)
    cdef object _flush(self)
    cdef object _advance(self, Py_ssize_t sent)
    @cython.locals(datagram=tuple, data=bytes)
    cdef tuple _take_first(self)
