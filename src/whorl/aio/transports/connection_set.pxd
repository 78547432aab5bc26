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
    cdef list _slots
    cdef list _free_slots
    cdef public bint is_over
    cdef public unsigned int expected_pieces

    @cython.locals(slot=int)
    cdef int add_slot(self, object transport) except -1
    cdef object discard_slot(self, int slot)

    cpdef object add(self, object transport)
    cpdef object discard(self, object transport)
    cpdef list transports(self)
