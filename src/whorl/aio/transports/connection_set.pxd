cimport cython

cdef extern from *:
    """
    static inline PyObject *whorl_weak_reference(PyObject *thing) {
        return PyWeakref_NewRef(thing, NULL);
    }
    static inline PyObject *whorl_identity(PyObject *thing) {
        return PyLong_FromVoidPtr(thing);
    }
    """
    object weak_reference "whorl_weak_reference"(object thing)
    object identity "whorl_identity"(object thing)


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
