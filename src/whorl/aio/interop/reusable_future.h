/* CPython's future: its attributes by the functions behind them. */
#ifndef WHORL_AIO_INTEROP_REUSABLE_FUTURE_H
#define WHORL_AIO_INTEROP_REUSABLE_FUTURE_H

#include "whorl/core/references.h"

static PyTypeObject *whorl_future_type;
static PyGetSetDef *whorl_future_state, *whorl_future_blocking, *whorl_future_callbacks;
static PyObject *whorl_future_remove, *whorl_pending;

/* Return the C functions behind an attribute of a class. Python can call them only by its name. */
static inline PyGetSetDef *whorl_accessors(PyObject *cls, const char *name) {
    PyObject *descriptor = PyObject_GetAttrString(cls, name);
    PyGetSetDef *found = NULL;
    if (descriptor != NULL && Py_IS_TYPE(descriptor, &PyGetSetDescr_Type))
        found = ((PyGetSetDescrObject *)descriptor)->d_getset;
    Py_XDECREF(descriptor); /* The class keeps it, and is kept. */
    return found;
}

/* Learn a class of futures, of which one that is pending is an example; return whether it is written in C, as
   expected. Python cannot keep the addresses of functions. */
static inline int whorl_learn_futures(PyObject *cls, PyObject *example) {
    if (!PyType_Check(cls))
        return 0;
    whorl_future_state = whorl_accessors(cls, "_state");
    whorl_future_blocking = whorl_accessors(cls, "_asyncio_future_blocking");
    whorl_future_callbacks = whorl_accessors(cls, "_callbacks");
    whorl_future_remove = PyObject_GetAttrString(cls, "remove_done_callback");
    whorl_pending = PyObject_GetAttrString(example, "_state");
    PyErr_Clear();
    if (whorl_future_state == NULL || whorl_future_state->get == NULL || whorl_future_blocking == NULL
        || whorl_future_blocking->set == NULL || whorl_future_callbacks == NULL
        || whorl_future_callbacks->get == NULL || whorl_future_remove == NULL || whorl_pending == NULL)
        return 0;
    whorl_future_type = (PyTypeObject *)Py_NewRef(cls);
    return 1;
}

/* Return whether an object is such a future; if not, an error is set. The C functions trust their caller. */
static inline int whorl_is_future(PyObject *thing) {
    if (whorl_future_type != NULL && Py_IS_TYPE(thing, whorl_future_type))
        return 1;
    PyErr_SetString(PyExc_TypeError, "a wait was never initialized");
    return 0;
}

/* Return whether a future is pending, or -1. Python's `done()` looks for a method at each await. */
static inline int whorl_is_pending(PyObject *future) {
    PyObject *state;
    int answer;
    if (!whorl_is_future(future))
        return -1;
    state = whorl_future_state->get(future, whorl_future_state->closure);
    if (state == NULL)
        return -1;
    answer = state == whorl_pending ? 1 : PyObject_RichCompareBool(state, whorl_pending, Py_EQ);
    Py_DECREF(state);
    return answer;
}

/* Do what the first step of awaiting a future does. Python would look for the attribute by its name. */
static inline int whorl_block(PyObject *future) {
    if (!whorl_is_future(future))
        return -1;
    return whorl_future_blocking->set(future, Py_True, whorl_future_blocking->closure);
}

/* Take the callback out of a future that has just one: return a tuple of it and its context. Return None if
   there is another number, or if it is no method written in C. Python would look up names. */
static inline PyObject *whorl_taken_callback(PyObject *future) {
    PyObject *callbacks, *pair, *arguments[2], *removed;
    if (!whorl_is_future(future))
        return NULL;
    callbacks = whorl_future_callbacks->get(future, whorl_future_callbacks->closure);
    if (callbacks == NULL)
        return NULL;
    if (!PyList_CheckExact(callbacks) || PyList_GET_SIZE(callbacks) != 1)
        goto other;
    pair = PyList_GET_ITEM(callbacks, 0);
    if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2
        || !PyCFunction_CheckExact(PyTuple_GET_ITEM(pair, 0))
        || !PyContext_CheckExact(PyTuple_GET_ITEM(pair, 1)))
        goto other;
    Py_INCREF(pair);
    Py_DECREF(callbacks);
    arguments[0] = future;
    arguments[1] = PyTuple_GET_ITEM(pair, 0);
    removed = PyObject_Vectorcall(whorl_future_remove, arguments, 2, NULL);
    if (removed == NULL) {
        Py_DECREF(pair);
        return NULL;
    }
    Py_DECREF(removed);
    return pair;
other:
    Py_DECREF(callbacks);
    return Py_NewRef(Py_None);
}

/* Return the object that a method written in C is bound to, or None. Python would look for `__self__`. */
static inline PyObject *whorl_bound_to(PyObject *callback) {
    PyObject *bound = PyCFunction_CheckExact(callback) ? PyCFunction_GET_SELF(callback) : NULL;
    return Py_NewRef(bound == NULL ? Py_None : bound);
}

#endif
