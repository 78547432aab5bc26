/* Calling a function in a context, and contexts that are used again. */
#pragma once
#include "whorl/core/threads.h"

/* Call the method `run` of an object that is no Context. Only C, in the middle of a call, knows that it is
   none. */
static inline PyObject *whorl_run_by_method(PyObject *context, PyObject *callback, PyObject *args) {
    PyObject *run = PyObject_GetAttrString(context, "run"), *first, *all = NULL, *result = NULL;
    if (run == NULL)
        return NULL;
    first = PyTuple_Pack(1, callback);
    if (first != NULL)
        all = PySequence_Concat(first, args);
    if (all != NULL)
        result = PyObject_Call(run, all, NULL);
    Py_XDECREF(all);
    Py_XDECREF(first);
    Py_DECREF(run);
    return result;
}

/* Call a function. Python checks each result, which is always right for its own functions and methods. */
static inline PyObject *whorl_call(PyObject *callback, PyObject *const *arguments, size_t count) {
    if (Py_IS_TYPE(callback, &PyFunction_Type))
        return ((PyFunctionObject *)callback)->vectorcall(callback, arguments, count, NULL);
    if (Py_IS_TYPE(callback, &PyMethod_Type))
        return ((PyMethodObject *)callback)->vectorcall(callback, arguments, count, NULL);
    return PyObject_Vectorcall(callback, arguments, count, NULL);
}

/* Call a function in a context. Python has Context.run alone, which packs arguments anew. */
static inline PyObject *whorl_call_in(PyObject *context, PyObject *callback, PyObject *const *arguments,
                                      size_t count) {
    PyObject *result;
    if (PyContext_Enter(context) < 0)
        return NULL;
    result = whorl_call(callback, arguments, count);
    if (PyContext_Exit(context) < 0)
        Py_CLEAR(result);
    return result;
}

/* The same with the given arguments, and a place before them where a method puts its object. */
#define whorl_call_with(context, callback, ...) \
    whorl_call_in(context, callback, (PyObject *[]){NULL, __VA_ARGS__} + 1, \
                  (sizeof((PyObject *[]){__VA_ARGS__}) / sizeof(PyObject *)) | PY_VECTORCALL_ARGUMENTS_OFFSET)

/* Do what Context.run does. Python would copy the arguments; C takes them straight from the tuple. */
static inline PyObject *whorl_run_in_context(PyObject *context, PyObject *callback, PyObject *args) {
    PyObject *result;
    if (!PyTuple_Check(args)) {
        PyErr_SetString(PyExc_TypeError, "the arguments of a callback are a tuple");
        return NULL;
    }
    result = whorl_call_in(context, callback, ((PyTupleObject *)args)->ob_item, PyTuple_GET_SIZE(args));
    if (result != NULL || PyContext_CheckExact(context))
        return result;
    PyErr_Clear();
    return whorl_run_by_method(context, callback, args);
}

/* An empty context that was used, and whether this thread keeps one. */
static WHORL_PER_THREAD PyObject *whorl_spare_context;
static WHORL_PER_THREAD int whorl_keeps_context;

/* Return whether a context holds nothing. The functions below ask, which are C. */
static inline int whorl_holds_nothing(PyObject *context) {
    return PyContext_Type.tp_as_mapping->mp_length(context) == 0;
}

/* Return whether the context of the calling code holds nothing. Python can only copy that context. */
static inline int whorl_context_is_empty(void) {
    PyObject *context = PyThreadState_Get()->context;
    return context == NULL || whorl_holds_nothing(context);
}

/* Return a new context, or one that cannot be told from it. Until `whorl_settle_context` the collector does
   not see it, so no program finds a kept one. Python cannot hide an object. */
static inline PyObject *whorl_empty_context(void) {
    PyObject *context = whorl_spare_context;
    whorl_spare_context = NULL;
    if (context == NULL && (context = PyContext_New()) != NULL)
        PyObject_GC_UnTrack(context);
    return context;
}

/* Keep a context that was used, if it is empty and only the caller and the callback refer to it. Return
   whether it is kept. Python cannot show an object to the collector. */
static inline int whorl_settle_context(PyObject *context, int is_callbacks) {
    if (is_callbacks && whorl_keeps_context && whorl_spare_context == NULL && whorl_is_held_alone(context, 2)
        && whorl_holds_nothing(context)) {
        whorl_spare_context = Py_NewRef(context);
        return 1;
    }
    if (!PyObject_GC_IsTracked(context))
        PyObject_GC_Track(context);
    return 0;
}

/* Say whether this thread keeps a context from now on; if not, free the kept one. Python's threads share all
   names. */
static inline void whorl_keep_context(int keeps) {
    PyObject *context = whorl_spare_context;
    whorl_keeps_context = keeps;
    whorl_spare_context = NULL;
    if (context != NULL) {
        PyObject_GC_Track(context); /* Its end takes it off the collector's list. */
        Py_DECREF(context);
    }
}
