/* Making CPython's futures and tasks. */
#pragma once
#include "whorl/aio/interop/reusable_future.h"
#include "whorl/core/references.h"
#include "whorl/core/vectorcall.h"

static PyObject *whorl_spare_arguments; /* a tuple of one item, to which no other code has a reference */

/* Make a task from a tuple that is used again. Python's tuples never change. */
static inline PyObject *whorl_task_of(PyObject *cls, PyObject *coroutine) {
    PyObject *arguments = NULL, *made;
    if (WHORL_HAS_GIL) { /* Without it, threads would fight for the spare one. */
        arguments = whorl_spare_arguments;
        whorl_spare_arguments = NULL;
    }
    if (arguments == NULL) {
        arguments = PyTuple_New(1);
        if (arguments == NULL)
            return NULL;
        PyObject_GC_UnTrack(arguments);
    }
    PyTuple_SET_ITEM(arguments, 0, Py_NewRef(coroutine));
    made = whorl_future_of(cls, arguments);
    if (whorl_has_single_reference(arguments) && whorl_spare_arguments == NULL) {
        whorl_spare_arguments = arguments;
        PyTuple_SET_ITEM(arguments, 0, NULL);
        Py_DECREF(coroutine);
        return made;
    }
    PyObject_GC_Track(arguments); /* other code keeps it */
    Py_DECREF(arguments);
    return made;
}

/* `create_task` of a loop and a coroutine; with more arguments, Cython's function runs. */
typedef PyObject *(*whorl_task_maker)(PyObject *loop, PyObject *coroutine);

static whorl_task_maker whorl_plain_task;
static vectorcallfunc whorl_compiled_create_task;

/* Return whether there is no name, or only the name that asyncio gives an unnamed task before 3.14. Python
   would make a dictionary of them. */
static inline int whorl_says_nothing(PyObject *names, PyObject *const *values) {
    return names == NULL || PyTuple_GET_SIZE(names) == 0
           || (PyTuple_GET_SIZE(names) == 1 && values[0] == Py_None
               && whorl_is_named(PyTuple_GET_ITEM(names, 0), "name"));
}

/* Make a task, if there are no further options. Cython sorts arguments more slowly. */
static PyObject *whorl_create_task(PyObject *function, PyObject *const *arguments, size_t count,
                                   PyObject *names) {
    if (PyVectorcall_NARGS(count) == 2 && whorl_says_nothing(names, arguments + 2)) {
        PyObject *made = whorl_plain_task(arguments[0], arguments[1]);
        if (made != Py_None)
            return made;
        Py_DECREF(made);
    }
    return whorl_compiled_create_task(function, arguments, count, names);
}

/* Let `create_task` take its arguments in this way. Python cannot write the address by which a function is
   called. */
static inline void whorl_take_create_task(PyObject *create_task, whorl_task_maker maker) {
    whorl_plain_task = maker;
    whorl_exchange(create_task, whorl_create_task, &whorl_compiled_create_task);
}
