cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport uint64_t

cdef extern from *:
    """
    static inline unsigned int whorl_version_of(PyObject *cls) {
        return PyType_Check(cls) ? (unsigned int)((PyTypeObject *)cls)->tp_version_tag : 0;
    }
    """
    unsigned int version_of "whorl_version_of"(object cls)


cdef class ClassSnapshot:
    cdef list _methods
    cdef uint64_t _versions

    @cython.locals(versions=uint64_t)
    cpdef bint is_current(self) except -1


cdef inline uint64_t versions_of(list methods) except? 0:
    # The interpreter gives a class a new number when it was changed, which is 0 until it is looked at again.
    cdef uint64_t versions = 1
    cdef PyObject *owner = NULL
    cdef unsigned int version
    cdef tuple method
    for method in methods:
        if <PyObject *>method[0] != owner:
            owner = <PyObject *>method[0]
            version = version_of(<object>owner)
            if version == 0:
                return 0
            versions = versions * 1000003 + version
    return versions
