/* The hooks of this thread for asynchronous generators. Python's own functions audit each change, which takes
   longer than a turn of a simulated loop, and each turn changes them twice. */
#pragma once
#include <Python.h>

/* Put a hook into its place, or none. Python code cannot reach the place. */
static inline void whorl_put_hook(PyObject **place, PyObject *hook) {
    PyObject *former = *place;
    *place = hook == Py_None ? NULL : Py_NewRef(hook);
    Py_XDECREF(former);
}

/* Return a hook, or None. */
static inline PyObject *whorl_hook(PyObject *hook) {
    return Py_NewRef(hook ? hook : Py_None);
}

/* Return the hook for a generator that begins. `sys` makes a named tuple of both hooks. */
static inline PyObject *whorl_first_hook(void) {
    return whorl_hook(PyThreadState_Get()->async_gen_firstiter);
}

/* Return the hook for a generator that nobody finished. */
static inline PyObject *whorl_last_hook(void) {
    return whorl_hook(PyThreadState_Get()->async_gen_finalizer);
}

/* Set both hooks, without the events that `sys.set_asyncgen_hooks` audits. */
static inline void whorl_set_hooks(PyObject *first, PyObject *last) {
    whorl_put_hook(&PyThreadState_Get()->async_gen_firstiter, first);
    whorl_put_hook(&PyThreadState_Get()->async_gen_finalizer, last);
}
