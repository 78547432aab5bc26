/* A poller's table of handles by descriptor. */
#ifndef WHORL_CORE_POLLERS_CONTRACT_H
#define WHORL_CORE_POLLERS_CONTRACT_H

#include "whorl/core/references.h"

/* Return the handle of a descriptor in a poller's table, or None. In Python a number past the end is an
   exception, and each event would need two looks at the length. */
static inline PyObject *whorl_watcher_in(PyObject *table, int fd) {
    PyObject *found;
    if (table == Py_None) {
        PyErr_SetString(PyExc_TypeError, "the poller was never initialized");
        return NULL;
    }
    found = fd >= 0 && fd < PyList_GET_SIZE(table) ? PyList_GET_ITEM(table, fd) : Py_None;
    Py_INCREF(found);
    return found;
}

#endif
