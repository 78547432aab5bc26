/* Lists as queues. */
#pragma once
#include "whorl/core/references.h"

/* Do what list.append does. Python's makes a call where a list is less than half full, as a turn's is. */
static inline int whorl_append(PyObject *list, PyObject *entry) {
    Py_ssize_t size = PyList_GET_SIZE(list);
    if (!WHORL_HAS_GIL || size >= ((PyListObject *)list)->allocated)
        return PyList_Append(list, entry);
    PyList_SET_ITEM(list, size, Py_NewRef(entry));
    Py_SET_SIZE(list, size + 1);
    return 0;
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

/* Empty a list that has no other user. Python would give the memory back, which the next turn asks for again.
   If the list is short and holds None only, its memory is kept. */
static inline int whorl_empty(PyObject *list) {
    Py_ssize_t size = PyList_GET_SIZE(list), position = 0;
    while (WHORL_HAS_GIL && position < size && position < 64 && PyList_GET_ITEM(list, position) == Py_None)
        position++;
    if (!WHORL_HAS_GIL || position < size)
        return PyList_SetSlice(list, 0, size, NULL);
    Py_SET_SIZE(list, 0);
    while (position-- > 0)
        Py_DECREF(Py_None);
    return 0;
}

/* Take the last entry out of a list that has no other user. Python's list.pop may make it smaller. */
static inline void *whorl_last_taken(PyObject *list) {
    Py_ssize_t last = PyList_GET_SIZE(list) - 1;
    PyObject *entry;
    if (last < 0) {
        PyErr_SetString(PyExc_IndexError, "the list has become empty");
        return NULL;
    }
    entry = PyList_GET_ITEM(list, last);
    if (WHORL_HAS_GIL && last < 64) {
        Py_SET_SIZE(list, last);
        return entry;
    }
    Py_INCREF(entry);
    if (PyList_SetSlice(list, last, last + 1, NULL) < 0)
        Py_CLEAR(entry);
    return entry;
}
