cimport cython

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_FromStringAndSize

from whorl.core cimport limits
from whorl.core.lists cimport last_taken


cdef class StreamBuffer:
    cdef list _chunks
    cdef Py_ssize_t _offset
    cdef Py_ssize_t _size
    cdef bytearray _flat
    cdef bint _lent

    cdef object _set_up_buffer(self)
    cdef Py_ssize_t _count(self) except -1
    cpdef object replace(self, object content)
    cpdef bytearray lend(self)
    @cython.locals(copy=bytearray, size=Py_ssize_t, last=bytes)
    cpdef object add(self, object data)
    @cython.locals(chunk=bytes, rest=Py_ssize_t, end=Py_ssize_t, data=bytes)
    cpdef bytes take(self, Py_ssize_t limit)
    @cython.locals(chunk=bytes, size=Py_ssize_t, count=Py_ssize_t)
    cdef bytes _take_more(self, bytes data, Py_ssize_t limit)
    @cython.locals(flat=bytearray, size=Py_ssize_t)
    cdef bytes _take_flat(self, Py_ssize_t limit)
    @cython.locals(chunk=bytes, found=Py_ssize_t)
    cpdef Py_ssize_t find(self, bytes separator, Py_ssize_t start) except -2
    @cython.locals(found=Py_ssize_t)
    cpdef bytes take_until(self, bytes separator, Py_ssize_t limit)
    cdef object _flatten(self)


cdef inline bytes cut(bytearray flat, Py_ssize_t size):
    if size < 0 or size > len(flat):
        raise IndexError("there are not so many bytes")
    return PyBytes_FromStringAndSize(PyByteArray_AS_STRING(flat), size)
