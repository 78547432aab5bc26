/* Calls of a protocol's methods. */
#ifndef WHORL_AIO_TRANSPORTS_STREAM_H
#define WHORL_AIO_TRANSPORTS_STREAM_H

#include <Python.h>

/* Call a method with one argument; return whether that went well. If not, its exception is set, for which
   Python's `try` costs a look at each message. */
static inline int whorl_deliver_catching(PyObject *protocol, PyObject *method, PyObject *argument) {
    PyObject *result = PyObject_CallMethodOneArg(protocol, method, argument);
    Py_XDECREF(result);
    return result != NULL;
}

#endif
