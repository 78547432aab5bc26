from cpython.ref cimport PyObject

cdef extern from "Python.h":
    int PyObject_GenericSetAttr(object thing, object name, PyObject *value) except -1


cdef inline int set_plainly(object thing, object name, object value) except -1:
    return PyObject_GenericSetAttr(thing, name, <PyObject *>value)


cdef inline int delete_plainly(object thing, object name) except -1:
    return PyObject_GenericSetAttr(thing, name, NULL)


cdef class Noticing:
    pass


cdef class Unaware:
    pass
