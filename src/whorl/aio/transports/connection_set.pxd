cimport cython
from cpython.long cimport PyLong_FromVoidPtr
from cpython.ref cimport PyObject

cdef extern from "Python.h":
    object PyWeakref_NewRef(object thing, PyObject *callback)


cdef inline object weak_reference(object thing):
    return PyWeakref_NewRef(thing, NULL)


cdef inline object identity(object thing):
    return PyLong_FromVoidPtr(<void *>thing)


cdef class ConnectionSet:
    cdef dict _others
    cdef list _places
    cdef list _free
    cdef public bint is_over

    @cython.locals(place=int)
    cdef int enter(self, object transport) except -1
    cdef object leave(self, int place)

    cpdef object add(self, object transport)
    cpdef object discard(self, object transport)
    cpdef list transports(self)
