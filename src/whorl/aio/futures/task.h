/* Steps of coroutines. */
#pragma once
#include "whorl/core/threads.h"

/* The last send's outcome, read at once after it, before any other code of the thread can run. */
static WHORL_PER_THREAD int whorl_returned;

/* Let a coroutine go on. Python's `send` reports a return by an exception. */
static inline PyObject *whorl_send(PyObject *coro) {
    PyObject *result = NULL;
    PySendResult outcome = PyIter_Send(coro, Py_None, &result);
    whorl_returned = outcome == PYGEN_RETURN;
    return outcome == PYGEN_ERROR ? NULL : result;
}

/* Return whether the coroutine returned. `send` notes that in a variable of C. */
static inline int whorl_has_returned(void) {
    return whorl_returned;
}

/* The rings of tasks. Without the GIL there are several, so that loops seldom wait for each other's lock; a
   task is in the ring that its address tells. */
#ifdef Py_GIL_DISABLED
#define WHORL_RINGS 64

/* Let other threads take a reference to a task by `whorl_survives`. Python has no such references before
   3.14. */
static inline void whorl_may_be_found(PyObject *task) {
#if PY_VERSION_HEX >= 0x030E0000
    PyUnstable_EnableTryIncRef(task);
#else
    Py_ssize_t none = 0; /* else other threads refer to it, and it is counted in the careful way anyway */
    __atomic_compare_exchange_n(&task->ob_ref_shared, &none, _Py_REF_MAYBE_WEAKREF, 0, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
#endif
}

/* Take a reference to a task, unless another thread has begun to free it; return whether it was taken. The
   caller keeps its memory from being freed. Python has this for its weak references only. */
static inline int whorl_survives(PyObject *task) {
#if PY_VERSION_HEX >= 0x030E0000
    return PyUnstable_TryIncRef(task);
#else
    Py_ssize_t shared = __atomic_load_n(&task->ob_ref_shared, __ATOMIC_RELAXED);
    if (__atomic_load_n(&task->ob_tid, __ATOMIC_RELAXED) == _Py_ThreadId()) {
        if (__atomic_load_n(&task->ob_ref_local, __ATOMIC_RELAXED) == 0)
            return 0;
        Py_INCREF(task);
        return 1;
    }
    while (shared != 0 && shared != _Py_REF_MERGED)
        if (__atomic_compare_exchange_n(&task->ob_ref_shared, &shared,
                                        shared + ((Py_ssize_t)1 << _Py_REF_SHARED_SHIFT), 0,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            return 1;
    return 0;
#endif
}

#else
#define WHORL_RINGS 1
#define whorl_may_be_found(task) ((void)(task))

/* Take a reference to a task, unless it is being freed; return whether it was taken. Python's own reference
   to one that is being freed would free it twice. */
static inline int whorl_survives(PyObject *task) {
    if (Py_REFCNT(task) <= 0)
        return 0;
    Py_INCREF(task);
    return 1;
}
#endif
