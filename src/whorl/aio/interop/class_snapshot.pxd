cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint64_t

cdef extern from "Python.h":
    bint PyType_Check(object thing) noexcept
    ctypedef struct PyTypeObject:
        unsigned int tp_version_tag

cdef extern from "whorl/aio/interop/class_snapshot.h":
    ctypedef int64_t seen_versions "whorl_versions"


cdef class ClassSnapshot:
    cdef list _methods
    cdef list _owners
    cdef seen_versions _versions

    @cython.locals(versions=int64_t)
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
