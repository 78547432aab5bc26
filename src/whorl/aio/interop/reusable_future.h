/* Making CPython's futures. */
#pragma once
#include <Python.h>

/* Make an object of exactly this class from these arguments. Python's call of a class packs them anew. */
static inline PyObject *whorl_future_of(PyObject *cls, PyObject *arguments) {
    PyTypeObject *type = (PyTypeObject *)cls;
    PyObject *made = arguments == NULL ? NULL : type->tp_new(type, arguments, NULL);
    if (made != NULL && type->tp_init(made, arguments, NULL) < 0)
        Py_CLEAR(made);
    return made;
}
