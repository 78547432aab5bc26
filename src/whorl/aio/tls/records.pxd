cimport cython

from cpython.buffer cimport PyBUF_WRITE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF

from whorl.aio.tls cimport states
from whorl.core.kernel.kernel cimport owned, resize_bytes
from whorl.core.kernel.message_buffers cimport is_sole

cdef Py_ssize_t HEADER_SIZE, VERSION_MAJOR, LEAST_TYPE, GREATEST_TYPE, LONGEST_BODY


cdef class RecordScanner:
    cdef readonly bint is_known
    cdef Py_ssize_t _missing
    cdef Py_ssize_t _seen
    cdef Py_ssize_t _length

    cpdef bint is_between(self) except -1
    cpdef object stop(self)
    @cython.locals(at=Py_ssize_t)
    cpdef object scan(self, bytearray data, Py_ssize_t size)
    @cython.locals(end=Py_ssize_t, place=Py_ssize_t)
    cpdef Py_ssize_t whole(self, bytearray data, Py_ssize_t at, Py_ssize_t size, Py_ssize_t enough) except -1
    @cython.locals(byte=Py_ssize_t, rest=Py_ssize_t)
    cdef Py_ssize_t _record_end(self, bytearray data, Py_ssize_t at, Py_ssize_t size) except -1


cdef class RecordReader(RecordScanner):
    cdef object _incoming
    cdef bytearray _scratch
    cdef object _scratch_view
    cdef bytes _buffer
    cdef Py_ssize_t _filled
    cdef public Py_ssize_t part
    cdef readonly bint is_all
    cdef readonly bint is_end
    cdef public object error

    cdef bytes decrypt(self, object records, Py_ssize_t size)
    @cython.locals(at=Py_ssize_t, end=Py_ssize_t)
    cdef object _decrypt_whole(self, object records, Py_ssize_t size)
    @cython.locals(count=Py_ssize_t)
    cdef object _decrypt_pending(self, object records)


cdef inline bytes new_buffer(Py_ssize_t size):
    return PyBytes_FromStringAndSize(NULL, size)


cdef inline object buffer_tail(bytes buffer, Py_ssize_t start):
    # These bytes may be written to: no other code has them before the view is released.
    return PyMemoryView_FromMemory(PyBytes_AS_STRING(buffer) + start, len(buffer) - start, PyBUF_WRITE)


cdef inline bytes take_bytes(RecordReader reader):
    cdef Py_ssize_t size = reader._filled
    cdef PyObject *data = <PyObject *>reader._buffer
    if not is_sole(data):
        return PyBytes_FromStringAndSize(PyBytes_AS_STRING(reader._buffer), size)
    Py_INCREF(reader._buffer)
    reader._buffer = None  # The resized object must have one reference.
    resize_bytes(&data, size)
    return <bytes>owned(data)
