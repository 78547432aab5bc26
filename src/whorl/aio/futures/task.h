/* Steps of coroutines. */
#pragma once
#include <Python.h>

/* The last send's outcome, read at once after it, before any other code can run. */
static int whorl_returned;

/* Let a coroutine go on. Python's `send` reports a return by an exception. */
static inline PyObject *whorl_send(PyObject *coro) {
    PyObject *result = NULL;
    PySendResult outcome = PyIter_Send(coro, Py_None, &result);
    whorl_returned = outcome == PYGEN_RETURN;
    return outcome == PYGEN_ERROR ? NULL : result;
}

/* Return whether the coroutine returned. `send` notes that in a variable of C. */
static inline int whorl_has_returned(void) {
    return whorl_returned;
}
