/* The end of an iteration over a future. */
#pragma once
#include <Python.h>

/* Set a StopIteration with a value; without one, the end of an iteration needs no exception. Python's `raise`
   would also make a traceback, which no code reads. */
static inline int whorl_stop_with(PyObject *value) {
    PyObject *stop;
    if (value == Py_None)
        return 0;
    stop = PyObject_CallOneArg(PyExc_StopIteration, value);
    if (stop == NULL)
        return -1;
    PyErr_SetObject(PyExc_StopIteration, stop);
    Py_DECREF(stop);
    return 0;
}
