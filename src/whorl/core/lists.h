/* Lists as queues. */
#ifndef WHORL_CORE_LISTS_H
#define WHORL_CORE_LISTS_H

#include "whorl/core/references.h"

/* Do what list.append does. Python's makes a call where a list is less than half full, as a turn's is. */
static inline int whorl_append(PyObject *list, PyObject *entry) {
#ifndef Py_GIL_DISABLED
    Py_ssize_t size = PyList_GET_SIZE(list);
    if (size < ((PyListObject *)list)->allocated) {
        PyList_SET_ITEM(list, size, Py_NewRef(entry));
        Py_SET_SIZE(list, size + 1);
        return 0;
    }
#endif
    return PyList_Append(list, entry);
}

/* Take an entry and leave None in its place. Python would count the entry up and down again. */
static inline PyObject *whorl_taken(PyObject *batch, Py_ssize_t index) {
    PyObject *entry;
    if (index >= PyList_GET_SIZE(batch)) {
        PyErr_SetString(PyExc_IndexError, "the batch has become shorter");
        return NULL;
    }
    entry = PyList_GET_ITEM(batch, index);
    Py_INCREF(Py_None);
    PyList_SET_ITEM(batch, index, Py_None);
    return entry;
}

/* Take the only entry out of a list; None if there are others, or it is of another type.
   A list that Python empties gives its memory back. */
static inline void *whorl_only_one(PyObject *batch, PyObject *type) {
#ifndef Py_GIL_DISABLED
    PyObject *entry;
    if (PyList_GET_SIZE(batch) == 1) {
        entry = PyList_GET_ITEM(batch, 0);
        if ((PyObject *)Py_TYPE(entry) == type) {
            Py_SET_SIZE(batch, 0);
            return entry;
        }
    }
#endif
    return Py_NewRef(Py_None);
}

/* Empty a list that has no other user. Python would give the memory back, which the next turn asks for again.
   If the list is short and holds None only, its memory is kept. */
static inline int whorl_empty(PyObject *list) {
    Py_ssize_t size = PyList_GET_SIZE(list);
#ifndef Py_GIL_DISABLED
    Py_ssize_t position;
    for (position = 0; position < size && position < 64; position++)
        if (PyList_GET_ITEM(list, position) != Py_None)
            break;
    if (position == size) {
        Py_SET_SIZE(list, 0);
        while (position-- > 0)
            Py_DECREF(Py_None);
        return 0;
    }
#endif
    return PyList_SetSlice(list, 0, size, NULL);
}

/* Take the last entry out of a list that has no other user. Python's list.pop may make it smaller. */
static inline PyObject *whorl_last_taken(PyObject *list) {
    Py_ssize_t last = PyList_GET_SIZE(list) - 1;
    PyObject *entry;
    if (last < 0) {
        PyErr_SetString(PyExc_IndexError, "the list has become empty");
        return NULL;
    }
    entry = PyList_GET_ITEM(list, last);
#ifndef Py_GIL_DISABLED
    if (last < 64) {
        Py_SET_SIZE(list, last);
        return entry;
    }
#endif
    Py_INCREF(entry);
    if (PyList_SetSlice(list, last, last + 1, NULL) == 0)
        return entry;
    Py_DECREF(entry);
    return NULL;
}

#endif
