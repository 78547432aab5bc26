/* The clock, a mask of signals, and references that are handed on. */
#ifndef WHORL_CORE_KERNEL_KERNEL_H
#define WHORL_CORE_KERNEL_KERNEL_H

#include <Python.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#else
#include <time.h>
#endif

#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif

/* Return the signals that this thread holds back, and one more, as the kernel's 64 bits.
   Python's signal.pthread_sigmask returns a set, which no system call takes. */
static inline uint64_t whorl_mask_with(int number) {
    sigset_t set;
    uint64_t mask;
    sigemptyset(&set);
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    sigaddset(&set, number);
    memcpy(&mask, &set, sizeof(mask));
    return mask;
}

/* Read the processor's counter of ticks. Python has no such function. */
static inline int64_t whorl_read_ticks(void) {
#if defined(__x86_64__)
    return (int64_t)__rdtsc();
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
#endif
}

/* Whether a Python function has replaced `time.monotonic`; -1: unknown. */
static int whorl_clock_answer = -1;

#if PY_VERSION_HEX >= 0x030C0000 && !defined(Py_GIL_DISABLED)
/* Note that a name in `time` has changed. Only C functions can watch a dictionary. */
static int whorl_names_changed(PyDict_WatchEvent event, PyObject *names, PyObject *name, PyObject *value) {
    (void)event, (void)names, (void)name, (void)value;
    whorl_clock_answer = -1;
    return 0;
}

/* Watch the names of `time`; return whether that is possible. Only C functions can watch a dictionary. */
static int whorl_watch_names(PyObject *names) {
    int watcher = PyDict_AddWatcher(whorl_names_changed);
    if (watcher >= 0 && PyDict_Watch(watcher, names) == 0)
        return 1;
    PyErr_Clear(); /* there are eight watchers for all that wish for one */
    return 0;
}
#else
#define whorl_watch_names(names) ((void)(names), 0) /* dictionaries tell nobody */
#endif

/* Look at `time.monotonic`, and note the result in a C variable, which the watcher writes, too. */
static int whorl_look_at_clock(void) {
    static PyObject *names = NULL, *name = NULL;
    static int is_watched = 0;
    PyObject *found;
    int answer;
    if (names == NULL) {
        PyObject *module = PyImport_ImportModule("time"); /* kept for good, and its names with it */
        if (module == NULL || (name = PyUnicode_InternFromString("monotonic")) == NULL)
            return -1;
        names = PyModule_GetDict(module);
        is_watched = whorl_watch_names(names);
    }
    found = PyDict_GetItemWithError(names, name);
    if (found == NULL)
        return PyErr_Occurred() ? -1 : 0;
    answer = !PyCFunction_CheckExact(found);
    if (is_watched)
        whorl_clock_answer = answer;
    return answer;
}

/* Return whether the clock is patched. Python would look into the dictionary each time. */
static inline int whorl_clock_is_patched(void) {
    return whorl_clock_answer >= 0 ? whorl_clock_answer : whorl_look_at_clock();
}

/* Return a reference that the caller owns, as an object. Cython counts one more for each cast. */
static inline PyObject *whorl_owned(PyObject *thing) {
    return thing;
}

#endif
