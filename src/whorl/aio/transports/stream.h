/* Calls of a protocol's methods. */
#pragma once
#include <Python.h>

/* Call a method with one argument; return whether it succeeded. If not, the exception stays set. Python's
   `try` would cost a look at it for each message. */
static inline int whorl_deliver_catching(PyObject *protocol, PyObject *method, PyObject *argument) {
    PyObject *result = PyObject_CallMethodOneArg(protocol, method, argument);
    Py_XDECREF(result);
    return result != NULL;
}
