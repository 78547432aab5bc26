/* The processor's counter, and the names in `time`. */
#pragma once
#include "whorl/core/threads.h"
#include <stdint.h>
#include <time.h>

/* Read the processor's counter of ticks. Python has no such function. */
static inline int64_t whorl_read_ticks(void) {
#if defined(__x86_64__)
    return (int64_t)__builtin_ia32_rdtsc();
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
#endif
}

#if PY_VERSION_HEX >= 0x030C0000
static whorl_shared_int *whorl_answer_about_names;

/* Forget what was found in a dictionary that has changed. Only C functions can watch a dictionary. */
static int whorl_name_changed(PyDict_WatchEvent event, PyObject *names, PyObject *name, PyObject *value) {
    (void)event, (void)names, (void)name, (void)value;
    *whorl_answer_about_names = -1;
    return 0;
}

/* Return whether a name in a watched dictionary is anything but a function in C, and note the answer. Without
   the GIL, the dictionary is locked meanwhile, as it is from the call of the watcher to the change. Python
   cannot lock it. */
static inline int whorl_look_at_name(PyObject *names, PyObject *name, whorl_shared_int *answer) {
    PyObject *value;
    int is_replaced;
#ifdef Py_GIL_DISABLED
    Py_BEGIN_CRITICAL_SECTION(names);
#endif
    value = PyDict_GetItemWithError(names, name);
    is_replaced = value == NULL || Py_TYPE(value) != &PyCFunction_Type;
    *answer = is_replaced;
#ifdef Py_GIL_DISABLED
    Py_END_CRITICAL_SECTION();
#endif
    return is_replaced; /* The answer may be forgotten again by now. */
}

/* Watch a dictionary; return whether one of the eight watchers was free. Only C functions can watch one. */
static inline int whorl_watch_names(PyObject *names, whorl_shared_int *answer) {
    int watcher = PyDict_AddWatcher(whorl_name_changed);
    whorl_answer_about_names = answer;
    if (watcher >= 0 && PyDict_Watch(watcher, names) == 0)
        return 1;
    PyErr_Clear();
    return 0;
}
#else
#define whorl_look_at_name(names, name, answer) (-1)
#define whorl_watch_names(names, answer) ((void)(names), (void)(answer), 0) /* dictionaries tell nobody */
#endif
