/* The running task of a loop, kept in the loop until somebody asks. */
#pragma once
#include "whorl/core/threads.h"

/* asyncio of 3.13 keeps the running tasks of all loops in one dictionary. Each step of a task changes it
   twice. Without the GIL, loops in several threads then wait for its lock and for its memory, longer than the
   step takes. So a loop keeps the task itself. Whoever looks for it in the dictionary hashes the loop, and
   the hash function puts it there first. From 3.14 on, CPython keeps it for each thread. */
#if defined(Py_GIL_DISABLED) && PY_VERSION_HEX < 0x030E0000
#define WHORL_KEEPS_CURRENT 1
#define WHORL_BEING_SHOWN 1
#define WHORL_SHOWN 2

typedef struct {
    _Atomic uintptr_t task; /* a reference of the thread that runs the step, with marks; or 0 */
    PyMutex showing;        /* held while the task is put into the dictionary */
    int is_in_dictionary;   /* which only its holder touches */
} whorl_current;

PyAPI_FUNC(int) _PyDict_SetItem_KnownHash(PyObject *, PyObject *, PyObject *, Py_hash_t);

typedef whorl_current *(*whorl_current_finder)(PyObject *loop);

static whorl_current_finder whorl_current_of;
static PyObject *whorl_current_tasks; /* asyncio's dictionary; each of two modules has this variable */
static hashfunc whorl_hash_of_loops;

/* Put the running task of a loop into asyncio's dictionary, for any thread; return -1 on an error. The end of
   its step waits for the lock once it finds a mark. So the task is alive here, and is taken out afterwards.
   Python has no such steps. */
static inline int whorl_show_current(whorl_current *current, PyObject *loop, Py_hash_t hash) {
    uintptr_t task = current->task, marked;
    int failed = 0;
    if (task == 0 || (task & WHORL_SHOWN))
        return 0;
    PyMutex_Lock(&current->showing); /* No code of the program runs until it is opened. */
    task = current->task;
    if (task != 0 && !(task & WHORL_SHOWN)
        && __atomic_compare_exchange_n(&current->task, &task, task | WHORL_BEING_SHOWN, 0, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST)) {
        failed = _PyDict_SetItem_KnownHash(whorl_current_tasks, loop, (PyObject *)task, hash);
        current->is_in_dictionary = !failed;
        marked = task | WHORL_BEING_SHOWN; /* unless the step has ended, and waits */
        __atomic_compare_exchange_n(&current->task, &marked, failed ? task : task | WHORL_SHOWN, 0,
                                    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    }
    PyMutex_Unlock(&current->showing);
    return failed;
}

/* Hash a loop as Python hashes objects, for whoever looks for its task. A method `__hash__` of Python would
   take longer, and would be there in all builds. */
static Py_hash_t whorl_hash_loop(PyObject *loop) {
    Py_hash_t hash = PyBaseObject_Type.tp_hash(loop);
    return whorl_show_current(whorl_current_of(loop), loop, hash) < 0 ? -1 : hash;
}

/* Let loops be hashed by this. Subclasses made later inherit it; one with a `__hash__` of its own does not
   keep its task. Python cannot add a method to a compiled class. */
static inline int whorl_take_hash(PyObject *cls, whorl_current_finder finder) {
    PyTypeObject *type = (PyTypeObject *)cls;
    PyObject *usual = PyObject_GetAttrString((PyObject *)&PyBaseObject_Type, "__hash__"), *ours = NULL;
    int done = -1;
    whorl_current_of = finder;
    if (usual != NULL && Py_IS_TYPE(usual, &PyWrapperDescr_Type))
        ours = PyDescr_NewWrapper(type, ((PyWrapperDescrObject *)usual)->d_base, (void *)whorl_hash_loop);
    if (ours != NULL && PyDict_SetItemString(type->tp_dict, "__hash__", ours) == 0) {
        type->tp_hash = whorl_hash_loop;
        PyType_Modified(type);
        done = 0;
    }
    Py_XDECREF(ours);
    Py_XDECREF(usual);
    return done;
}

/* Note the dictionary. For a variable of Python's, each step would count a reference to it, for which threads
   would wait. */
static inline void whorl_know_current_tasks(PyObject *tasks) {
    whorl_current_tasks = Py_NewRef(tasks);
}

/* Note the hash function, which lies in another module. Python sees a wrapper of it. */
static inline void whorl_know_hash(PyObject *cls) {
    hashfunc hash = ((PyTypeObject *)cls)->tp_hash;
    whorl_hash_of_loops = hash == PyBaseObject_Type.tp_hash ? NULL : hash;
}

/* Keep a task that begins a step; return 0 if it has to enter the dictionary. So it has if another task of
   the loop is running, which is an error, or if the loop is hashed by a method of the program's. Python has
   no way to see a hash function. */
static inline int whorl_keep_current(whorl_current *current, PyObject *loop, PyObject *task) {
    int found = 0;
    if (Py_TYPE(loop)->tp_hash != whorl_hash_of_loops || current->task != 0)
        return 0;
    if (PyDict_GET_SIZE(whorl_current_tasks) != 0)
        found = PyDict_Contains(whorl_current_tasks, loop);
    if (found < 0)
        PyErr_Clear(); /* To enter the dictionary raises it again. */
    if (found)
        return 0;
    current->task = (uintptr_t)task;
    return 1;
}

/* Forget a kept task at the end of its step; return 0 if it has to leave the dictionary. To exchange a number
   is one step, which Python does not have. */
static inline int whorl_forget_current(whorl_current *current, PyObject *task) {
    int is_in_dictionary;
    if (__atomic_exchange_n(&current->task, 0, __ATOMIC_SEQ_CST) == (uintptr_t)task)
        return 1;
    PyMutex_Lock(&current->showing);
    is_in_dictionary = current->is_in_dictionary;
    current->is_in_dictionary = 0;
    PyMutex_Unlock(&current->showing);
    return !is_in_dictionary;
}

#else
#define WHORL_KEEPS_CURRENT 0
typedef struct {} whorl_current;
#define whorl_take_hash(cls, finder) ((void)(cls), (void)(finder), 0)
#define whorl_know_current_tasks(tasks) ((void)(tasks))
#define whorl_know_hash(cls) ((void)(cls))
#define whorl_keep_current(current, loop, task) 0
#define whorl_forget_current(current, task) 0
#endif
