cimport cython

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_FromStringAndSize

from whorl.aio.streams.feed cimport StreamFeed
from whorl.aio.tls cimport states
from whorl.aio.tls.write_path cimport TLSWritePath
from whorl.aio.tls.records cimport RecordReader
from whorl.core cimport limits

cdef Py_ssize_t MOST_READ_BY_RECORDS


cpdef object flat_view(object buffer)


cdef class TLSEngine(TLSWritePath):
    cdef readonly object _incoming
    cdef readonly bytearray _scratch
    cdef object _scratch_view
    cdef readonly RecordReader _record_reader
    cdef public object _buffer
    cdef public bint _app_is_buffered
    cdef public StreamFeed _app_feed
    cdef public bint _closing
    cdef public bint _has_eof
    cdef public bint _app_reading_paused
    cdef readonly bint _transport_reading_paused
    cdef public Py_ssize_t _read_high
    cdef public Py_ssize_t _read_low
    cdef object _read_error
    cdef bint _read_all
    cdef bint _read_end

    cdef bint _is_transport_closing(self) except -1
    cdef object _peer_finished(self)
    cdef object _start_shutdown(self)
    cdef object _forget(self)

    cdef object _scratch_filled(self, Py_ssize_t size)
    cdef object _arrived(self, object data)
    cdef bint _read(self, Py_ssize_t fresh) except -1
    cdef bint _can_read_records(self, Py_ssize_t size) except -1
    @cython.locals(reader=RecordReader, data=bytes, is_all=bint, is_end=bint)
    cdef bint _read_records(self, Py_ssize_t size) except -1
    @cython.locals(state=int, size=Py_ssize_t, is_all=bint, is_end=bint)
    cdef bint _read_and_copy(self) except -1
    @cython.locals(feed=StreamFeed)
    cdef object _deliver_bytes(self, bytes data)
    @cython.locals(state=int, then=int, size=Py_ssize_t, capacity=Py_ssize_t, pending=Py_ssize_t)
    @cython.locals(is_all=bint, is_end=bint)
    cdef bint _read_into_buffer(self) except -1
    cdef bint _after_delivery(self, int state, bint is_all, bint is_end) except -1
    @cython.locals(size=Py_ssize_t, count=Py_ssize_t, is_whole=bint)
    cdef Py_ssize_t _decrypt(self, object target, Py_ssize_t capacity) except -1
    @cython.locals(ended=bint)
    cdef bint _discard(self) except -1
    @cython.locals(size=Py_ssize_t)
    cdef object _control_reading(self)
    cdef object _resume_app_reading(self)


cdef inline bytes taken(bytearray scratch, Py_ssize_t size):
    if size < 0 or size > len(scratch):
        raise ValueError("the SSL object has read more than it was asked for")
    return PyBytes_FromStringAndSize(PyByteArray_AS_STRING(scratch), size)
