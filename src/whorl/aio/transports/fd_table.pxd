cimport cython

from whorl.aio.transports.connection_set cimport weak_reference
from whorl.core.threads cimport seen_size


cdef class TransportTable:
    cdef Py_ssize_t _first
    cdef list _references
    cdef seen_size _count  # any thread asks for it

    @cython.locals(missing=Py_ssize_t, place=Py_ssize_t)
    cpdef object add(self, Py_ssize_t fd, object transport)
    cpdef object discard(self, Py_ssize_t fd, object transport)
    @cython.locals(place=Py_ssize_t)
    cpdef object get(self, Py_ssize_t fd)
    @cython.locals(place=Py_ssize_t)
    cdef object _forget(self, Py_ssize_t fd)
