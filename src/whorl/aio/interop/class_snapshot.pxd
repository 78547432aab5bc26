cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport uint64_t

cdef extern from "Python.h":
    bint PyType_Check(object thing) noexcept
    ctypedef struct PyTypeObject:
        unsigned int tp_version_tag


cdef class ClassSnapshot:
    cdef list _methods
    cdef list _owners
    cdef uint64_t _versions

    @cython.locals(versions=uint64_t)
    cpdef bint is_current(self) except -1


cdef inline unsigned int version_of(object cls) noexcept:
    return (<PyTypeObject *>cls).tp_version_tag if PyType_Check(cls) else 0


cdef inline uint64_t versions_of(list owners) except? 0:
    # The interpreter gives a class a new number when it was changed, which is 0 until it is looked at again.
    cdef uint64_t versions = 1
    cdef unsigned int version
    cdef object owner
    for owner in owners:
        version = version_of(owner)
        if version == 0:
            return 0
        versions = versions * 1000003 + version
    return versions
