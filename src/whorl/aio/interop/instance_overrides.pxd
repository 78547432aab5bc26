from cpython.ref cimport PyObject

from whorl.core.loop.state cimport LoopState

cdef extern from "Python.h":
    int PyObject_GenericSetAttr(object thing, object name, PyObject *value) except -1


cdef inline int set_plainly(object thing, object name, object value) except -1:
    return PyObject_GenericSetAttr(thing, name, <PyObject *>value)


cdef inline int delete_plainly(object thing, object name) except -1:
    return PyObject_GenericSetAttr(thing, name, NULL)


cdef inline object clock_function_of(object loop):
    return (<LoopState?>loop)._clock_function


cdef class OverrideObserver:
    pass


cdef class NoObserver:
    pass


cdef class ObservedDescriptor:
    cdef readonly object __name__
    cdef object _method
    cdef object _read
    cdef object _replaced
    cdef object _restored
