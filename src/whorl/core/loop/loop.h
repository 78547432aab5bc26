/* The scheduling methods take their arguments here: a loop, perhaps a time, a callback, its arguments, and
   perhaps a context by its name. All other arguments go to the function that Cython made, which refuses
   wrong ones. */
#pragma once
#include "whorl/core/references.h"
#include "whorl/core/vectorcall.h"

typedef PyObject *(*whorl_scheduler)(PyObject *loop, PyObject *when, PyObject *callback, PyObject *args,
                                     PyObject *context);

static PyTypeObject *whorl_loop_type;

/* Note the class of loops, in a variable that the C functions below read. */
static inline void whorl_know_loops(PyObject *type) {
    whorl_loop_type = (PyTypeObject *)type;
}

/* Return whether an object is a loop. Python's `isinstance` believes `__class__`; only `tp_base` says that a
   class has the layout. */
static inline int whorl_is_loop(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    while (type != NULL && type != whorl_loop_type)
        type = type->tp_base;
    return type != NULL;
}

/* Schedule the callback of the arguments. It is at `place`, the loop or the time before it.
   Cython sorts arguments more slowly. */
static inline PyObject *whorl_schedule(whorl_scheduler schedule, vectorcallfunc compiled, Py_ssize_t place,
                                       PyObject *function, PyObject *const *arguments, size_t flagged_count,
                                       PyObject *names) {
    Py_ssize_t count = PyVectorcall_NARGS(flagged_count), position;
    PyObject *context = Py_None, *args, *result;
    if (count <= place || !whorl_is_loop(arguments[0]))
        return compiled(function, arguments, flagged_count, names);
    if (names != NULL && PyTuple_GET_SIZE(names) > 0) {
        if (PyTuple_GET_SIZE(names) != 1 || !whorl_is_named(PyTuple_GET_ITEM(names, 0), "context"))
            return compiled(function, arguments, flagged_count, names);
        context = arguments[count];
    }
    args = PyTuple_New(count - place - 1);
    if (args == NULL)
        return NULL;
    for (position = place + 1; position < count; position++)
        PyTuple_SET_ITEM(args, position - place - 1, Py_NewRef(arguments[position]));
    result = schedule(arguments[0], arguments[place - 1], arguments[place], args, context);
    Py_DECREF(args);
    return result;
}

/* Define a method that takes its arguments by `whorl_schedule`. Python has no functions of this form (PEP
   590). */
#define WHORL_SCHEDULING(name, place) \
    static whorl_scheduler whorl_##name##_of; \
    static vectorcallfunc whorl_compiled_##name; \
    static PyObject *whorl_##name(PyObject *function, PyObject *const *arguments, size_t count, \
                                  PyObject *names) { \
        return whorl_schedule(whorl_##name##_of, whorl_compiled_##name, place, function, arguments, count, \
                              names); \
    } \
    static inline void whorl_take_##name(PyObject *method, whorl_scheduler scheduler) { \
        whorl_##name##_of = scheduler; \
        whorl_exchange(method, whorl_##name, &whorl_compiled_##name); \
    }

WHORL_SCHEDULING(call_soon, 1)
WHORL_SCHEDULING(post, 1)
WHORL_SCHEDULING(call_at, 2)
WHORL_SCHEDULING(call_later, 2)
