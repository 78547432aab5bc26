cimport cython

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_FromStringAndSize

from whorl.aio.stream_feed cimport StreamFeed

cdef int CONNECTING
cdef int HANDSHAKE
cdef int OPEN
cdef int FLUSHING
cdef int SHUTDOWN
cdef int CLOSED
cdef Py_ssize_t READ_SIZE
cdef Py_ssize_t RECORD_SIZE
cdef Py_ssize_t WRITE_BATCH
cdef int BATCHES_PER_TURN
cdef int QUIET_WRITES


cpdef object records_of(object sslobj)
cpdef object flat_view(object buffer)


cdef class TLSLayer:
    cdef readonly object _loop
    cdef public object _sslobj
    cdef public object _records
    cdef readonly object _incoming
    cdef readonly object _outgoing
    cdef readonly bytearray _scratch
    cdef object _scratch_view
    cdef public object _buffer
    cdef public object _transport
    cdef public bint _is_own
    cdef public object _app_protocol
    cdef public bint _app_is_buffered
    cdef public StreamFeed _app_feed
    cdef readonly int _state
    cdef public bint _closing
    cdef public bint _has_eof
    cdef list _backlog
    cdef Py_ssize_t _first
    cdef Py_ssize_t _offset
    cdef readonly Py_ssize_t _waiting
    cdef readonly bint _write_blocked
    cdef public int _lost_writes
    cdef public bint _transport_paused
    cdef public bint _app_writing_paused
    cdef public bint _app_reading_paused
    cdef readonly bint _transport_reading_paused
    cdef public Py_ssize_t _high
    cdef public Py_ssize_t _low
    cdef public Py_ssize_t _read_high
    cdef public Py_ssize_t _read_low
    cdef object _read_error
    cdef bint _read_all
    cdef bint _read_end
    cdef public bint _is_told

    cpdef object _enter(self, int state)

    cdef object _scratch_filled(self, Py_ssize_t size)
    cdef object _arrived(self, object data)
    cdef bint _read(self) except -1
    @cython.locals(state=int, size=Py_ssize_t, is_all=bint, is_end=bint, feed=StreamFeed)
    cdef bint _read_and_copy(self) except -1
    @cython.locals(state=int, size=Py_ssize_t, room=Py_ssize_t, pending=Py_ssize_t, is_all=bint, is_end=bint)
    cdef bint _read_into_buffer(self) except -1
    cdef bint _after_delivery(self, int state, bint is_all, bint is_end) except -1
    @cython.locals(size=Py_ssize_t, count=Py_ssize_t, is_whole=bint)
    cdef Py_ssize_t _decrypt(self, object target, Py_ssize_t room) except -1
    cpdef bint _discard(self) except -1
    @cython.locals(size=Py_ssize_t)
    cdef object _control_reading(self)
    cdef object _resume_app_reading(self)

    @cython.locals(size=Py_ssize_t, count=Py_ssize_t, is_queued=bint)
    cdef object _write(self, object data)
    cdef object _write_all(self, object chunks)
    cdef bint _is_lost(self) except -1
    cpdef object _append(self, object data, Py_ssize_t size)
    cdef object _send_backlog(self)
    cdef bint _send_outgoing(self) except -1
    @cython.locals(room=Py_ssize_t, count=Py_ssize_t)
    cdef object _encrypt(self)
    @cython.locals(chunk=bytes, size=Py_ssize_t, index=Py_ssize_t)
    cdef object _next_piece(self, Py_ssize_t room)
    @cython.locals(rest=Py_ssize_t)
    cdef object _advance(self, Py_ssize_t count)
    cpdef object _drop_backlog(self)
    @cython.locals(size=Py_ssize_t)
    cdef Py_ssize_t _unsent(self) except -1
    @cython.locals(size=Py_ssize_t)
    cdef object _control_writing(self)
    cdef object _tell(self, str call)


cdef inline bytes taken(bytearray scratch, Py_ssize_t size):
    if size < 0 or size > len(scratch):
        raise ValueError("the SSL object has read more than it was asked for")
    return PyBytes_FromStringAndSize(PyByteArray_AS_STRING(scratch), size)
