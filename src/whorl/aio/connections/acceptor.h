/* Objects for accepted connections. */
#ifndef WHORL_AIO_CONNECTIONS_ACCEPTOR_H
#define WHORL_AIO_CONNECTIONS_ACCEPTOR_H

#include <Python.h>

/* Do what `cls.__new__(cls)` does for a class that has no such method in Python. Python looks for one. */
static inline PyObject *whorl_new(PyObject *cls) {
    PyObject *none = PyTuple_New(0), *made = NULL;
    if (none != NULL) {
        made = ((PyTypeObject *)cls)->tp_new((PyTypeObject *)cls, none, NULL);
        Py_DECREF(none);
    }
    return made;
}

#endif
