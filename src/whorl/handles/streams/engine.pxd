cimport cython
from libc cimport errno
from libc.stdint cimport int64_t

from whorl.core cimport limits, states
from whorl.core.callback cimport AbstractLoop, flag
from whorl.core.figures cimport Counters
from whorl.core.kernel.kernel cimport Kernel
from whorl.core.loop.held_writes cimport HeldWrites
from whorl.core.loop.lifecycle cimport LoopLifecycle
from whorl.core.pollers.contract cimport IOHandle, Poller

cdef int CUT_SHORT


cdef class Stream(IOHandle):
    cdef Kernel _kernel
    cdef Poller _poller
    cdef HeldWrites _held
    cdef public object _sock
    cdef readonly list _chunks
    cdef readonly Py_ssize_t _offset
    cdef readonly Py_ssize_t _unsent
    cdef readonly int64_t _received_total
    cdef readonly int64_t _read_calls
    cdef readonly int64_t _sent_total
    cdef readonly int64_t _write_calls
    cdef readonly int _first
    cdef readonly int _attached_fd
    cdef int _last_read
    cdef flag _is_socket
    cdef readonly flag _reading
    cdef flag _more_to_read
    cdef flag _hung_up
    cdef flag _urgent
    cdef flag _is_counted

    # The sink: methods that a subclass overrides.
    cdef object _data_arrived(self, bytes data)
    cdef object _end_arrived(self)
    cdef object _read_failed(self, int code)
    cdef object _write_failed(self, int code)
    cdef object _sent_some(self)
    cdef object _peer_left(self)

    # The engine.
    @cython.locals(machine=LoopLifecycle)
    cdef object _set_up(self, AbstractLoop loop)
    cdef object _attach(self, object sock, int fd, bint is_socket, bint edge)
    cdef object _start_reading(self)
    cdef object _stop_reading(self)
    cdef object _update_interest(self)
    @cython.locals(is_read=bint, is_done=bint, waits=bint)
    cpdef object _on_events(self, int seen)
    cdef object _run_again(self)
    @cython.locals(limit=Py_ssize_t)
    cdef object _read(self)
    @cython.locals(last=int, limit=Py_ssize_t)
    cdef Py_ssize_t _read_limit(self) except -1
    @cython.locals(size=Py_ssize_t)
    cdef object _handle_read(self, object data, Py_ssize_t limit)
    cdef object _note_read(self, Py_ssize_t result, Py_ssize_t limit)
    @cython.locals(sent=Py_ssize_t)
    cdef Py_ssize_t _send(self, object data, Py_ssize_t size) except? -65536
    cdef Py_ssize_t _queue_rest(self, object data, Py_ssize_t sent, Py_ssize_t size) except? -65536
    cdef object _enqueue(self, object data, Py_ssize_t sent, Py_ssize_t size)
    cdef object _send_all(self, list chunks, Py_ssize_t size)
    @cython.locals(sent=Py_ssize_t, before=Py_ssize_t)
    cdef object _flush(self)
    cdef Py_ssize_t _send_first(self) except? -65536
    cdef object _advance(self, Py_ssize_t sent)
    @cython.locals(chunk=bytes, rest=Py_ssize_t)
    cdef object _take_out(self, Py_ssize_t sent)
    cdef object _drop_unsent(self)
    cpdef object _release(self)


cdef inline int count_read(Stream stream, Py_ssize_t size) except -1:
    cdef Counters *counters = stream._loop._figures.counters
    stream._received_total = stream._received_total + size
    stream._read_calls = stream._read_calls + 1
    counters.bytes_in += size
    counters.reads += 1
    return 0


cdef inline int count_sent(Stream stream, Py_ssize_t size) except -1:
    cdef Counters *counters = stream._loop._figures.counters
    stream._sent_total = stream._sent_total + size
    stream._write_calls = stream._write_calls + 1
    counters.bytes_out += size
    counters.writes += 1
    return 0


cdef inline int count_opened(Stream stream) except -1:
    if not stream._is_counted:
        stream._is_counted = True
        stream._loop._figures.counters.connections_opened += 1
    return 0


cdef inline int count_closed(Stream stream) except -1:
    if stream._is_counted:
        stream._is_counted = False
        stream._loop._figures.counters.connections_closed += 1
    return 0
