cimport cython

from whorl.aio.interop.class_snapshot cimport ClassSnapshot
from whorl.aio.tls cimport states

cdef Py_ssize_t WRITE_BATCH
cdef int BATCHES_PER_TURN, QUIET_WRITES
cdef object SSLObject
cdef ClassSnapshot METHODS


cpdef object records_of(object sslobj)


cdef class TLSWritePath:
    cdef readonly object _loop
    cdef public object _sslobj
    cdef public object _records
    cdef public bint _in_openssl
    cdef readonly object _outgoing
    cdef public object _transport
    cdef public bint _transport_is_ours
    cdef public object _app_protocol
    cdef readonly int _state
    cdef list _backlog
    cdef Py_ssize_t _first
    cdef Py_ssize_t _offset
    cdef readonly Py_ssize_t _waiting
    cdef readonly bint _write_blocked
    cdef public int _lost_writes
    cdef public bint _transport_paused
    cdef public bint _app_writing_paused
    cdef public Py_ssize_t _high
    cdef public Py_ssize_t _low
    cdef public bint _app_is_connected

    cdef object _set_state(self, int state)
    cdef object _refuse_entry(self)
    cdef object _continue_state(self)
    cdef object _fatal_error(self, object error, str message=*)
    cdef object _report(self, object error, str message, object transport=*)

    @cython.locals(size=Py_ssize_t, count=Py_ssize_t, is_queued=bint)
    cdef object _write(self, object data)
    cdef object _write_all(self, object chunks)
    cdef bint _count_lost_write(self) except -1
    cpdef object _append(self, object data, Py_ssize_t size)
    @cython.locals(later=list)
    cdef object _append_first(self, object rest, Py_ssize_t size)
    cdef object _send_backlog(self)
    cdef bint _send_outgoing(self) except -1
    @cython.locals(limit=Py_ssize_t, count=Py_ssize_t)
    cdef object _encrypt(self)
    @cython.locals(chunk=bytes, size=Py_ssize_t, index=Py_ssize_t)
    cdef object _next_piece(self, Py_ssize_t limit)
    @cython.locals(rest=Py_ssize_t)
    cdef object _advance(self, Py_ssize_t count)
    cdef object _drop_backlog(self)
    @cython.locals(size=Py_ssize_t)
    cdef Py_ssize_t _unsent(self) except -1
    @cython.locals(size=Py_ssize_t)
    cdef object _control_writing(self)
    cdef object _call_protocol(self, str call)
