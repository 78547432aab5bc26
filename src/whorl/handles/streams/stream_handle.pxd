cimport cython

from libc cimport errno
from libc.stdint cimport int64_t

from whorl.core cimport limits, states
from whorl.core.callback cimport call_with_three, call_with_two, current_context
from whorl.core.handle cimport Handle
from whorl.handles.streams.listener cimport Listener
from whorl.handles.requests cimport (
    Connect, RequestQueue, Shutdown, StreamRequest, Write, contiguous, new_write, recycle_write
)
from whorl.handles.streams.engine cimport Stream, count_opened, count_sent


cdef class StreamHandle(Stream):
    cdef bint _readable
    cdef bint _writable
    cdef object _read_callback
    cdef object _get_buffer
    cdef readonly object _read_context
    cdef RequestQueue _writes
    cdef RequestQueue _completed
    cdef bint _is_pending
    cdef Connect _connect_request
    cdef int _delayed_error
    cdef Shutdown _shutdown_request
    cdef Listener _listener
    cdef object _accepted
    cdef object _connection_callback
    cdef readonly object _connection_context

    @cython.locals(size=Py_ssize_t, code=Py_ssize_t, request=Write)
    cpdef Write write(self, object data, object callback=*)
    cdef object _accept(self, StreamHandle client)
    cdef object _check_writable(self)

    # For subclasses.
    cdef object _attach_socket(self, object sock)
    cdef object _begin(self, bint readable, bint writable)
    cdef object _check_unconnected(self)
    cdef object _check_unused(self)
    cdef object _check_free(self, int fd)
    cdef Connect _begin_connect(self, object callback, Py_ssize_t code)
    cdef object _begin_listen(self, object backlog, object callback)

    # The sink.
    cdef object _read(self)
    @cython.locals(result=Py_ssize_t)
    cdef object _read_into(self)
    cdef Py_ssize_t _fill(self, object buffer) except? -65536
    cdef object _data_arrived(self, bytes data)
    cdef object _end_arrived(self)
    cdef object _note_read(self, Py_ssize_t result, Py_ssize_t limit)
    cdef object _read_failed(self, int code)
    @cython.locals(request=StreamRequest)
    cdef bint _has_failed_write(self) except -1
    @cython.locals(request=Write)
    cdef object _write_failed(self, int code)
    cdef object _end_reading(self, object error)

    cdef object _update_interest(self)
    cdef object _run_again(self)
    @cython.locals(seen=int)
    cdef object _execute(self)
    cpdef object _on_events(self, int seen)
    cdef object _react(self, int seen)
    @cython.locals(code=int)
    cdef object _finish_connect(self, int seen)
    cdef object _settle(self)
    @cython.locals(request=Write)
    cdef object _complete_writes(self)
    cdef object _fail_writes(self, int code)
    cdef object _shut(self)
    @cython.locals(request=StreamRequest)
    cdef object _run_completed(self)
    cpdef object _release(self)
    cdef object _finish_close(self)
    cdef object _cancel_requests(self)
