from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject, PyTypeObject

from whorl.core.callback cimport Callback

cdef extern from "Python.h":
    PyTypeObject *Py_TYPE(PyObject *thing)

cdef extern from "whorl/core/lists.h":
    int append "whorl_append"(list entries, object entry) except -1
    int append_at "whorl_append"(PyObject *entries, object entry) except -1
    object taken "whorl_taken"(list batch, Py_ssize_t index)
    int empty "whorl_empty"(list batch) except -1
    object last_taken "whorl_last_taken"(list entries)
    Callback last_callback "whorl_last_taken"(list entries)


cdef inline Callback only_callback(list batch):
    # Take out the only entry, if it is a callback.
    if PyList_GET_SIZE(batch) == 1 and Py_TYPE(PyList_GET_ITEM(batch, 0)) == <PyTypeObject *>Callback:
        return last_callback(batch)
    return None
