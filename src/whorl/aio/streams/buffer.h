/* The list behind a stream's buffer. */
#ifndef WHORL_AIO_STREAMS_BUFFER_H
#define WHORL_AIO_STREAMS_BUFFER_H

#include <Python.h>

/* Empty a list. Python would free its memory; if it had one item the memory is kept, as the next item comes
   soon. */
static inline int whorl_drop_all(PyObject *list) {
#ifndef Py_GIL_DISABLED
    if (PyList_CheckExact(list) && PyList_GET_SIZE(list) == 1) {
        PyObject *item = PyList_GET_ITEM(list, 0);
        Py_SET_SIZE((PyVarObject *)list, 0);
        Py_DECREF(item);
        return 0;
    }
#endif
    return PyList_SetSlice(list, 0, PY_SSIZE_T_MAX, NULL);
}

#endif
