/* The freelist of callbacks, and running a callback. */
#pragma once
#include "whorl/core/context.h"

/* A reference to None for an empty place: references to None are not counted since 3.12. */
#if PY_VERSION_HEX >= 0x030C0000
#define WHORL_NONE Py_None
#define WHORL_DROP_NONE() ((void)0)
#else
#define WHORL_NONE Py_NewRef(Py_None)
#define WHORL_DROP_NONE() Py_DECREF(Py_None)
#endif

#define WHORL_ALWAYS_INLINE __attribute__((always_inline))

/* Prefetch the memory of the entry at that place, if there is one, into the processor's cache.
   Python cannot name memory. GCC leaves out calls of a function that does nothing else: so it is inlined. */
WHORL_ALWAYS_INLINE static inline void whorl_fetch(PyObject *entries, Py_ssize_t place) {
    if (entries != Py_None && place < PyList_GET_SIZE(entries)) {
        uintptr_t entry = (uintptr_t)PyList_GET_ITEM(entries, place);
        __builtin_prefetch((void *)(entry - 16), 1); /* where the collector's links are */
        __builtin_prefetch((void *)(entry + 48), 1);
        __builtin_prefetch((void *)(entry + 112), 1);
    }
}

/* The freelists: callbacks that have run and had no other reference, plain ones and guarded ones. Without the
   GIL each thread has its own while it runs a loop. So threads do not wait for each other, nor leave any. */
typedef struct {
    PyObject **entries;
    Py_ssize_t count, room;
} whorl_freelist;

static WHORL_PER_THREAD whorl_freelist whorl_freelists[2];

/* Make room for so many callbacks of each kind, and free those that are kept. The collector would look at a
   list of Python's, and show it. */
static inline void whorl_set_freelist_size(Py_ssize_t room) {
    int index;
    for (index = 0; index < 2; index++) {
        whorl_freelist *list = whorl_freelists + index;
        list->room = 0;
        while (list->count > 0)
            Py_DECREF(list->entries[--list->count]);
        PyMem_RawFree(list->entries);
        list->entries = room > 0 ? (PyObject **)PyMem_RawMalloc(room * sizeof(PyObject *)) : NULL;
        list->room = list->entries != NULL ? room : 0;
    }
    whorl_keep_context(room > 0);
}

/* Put a callback on its freelist; return whether there was room. The collector would look at a list of
   Python's. */
static inline int whorl_freelist_put(PyObject *callback, int guarded) {
    whorl_freelist *list = whorl_freelists + (guarded != 0);
    if (list->count >= list->room)
        return 0;
    list->entries[list->count++] = Py_NewRef(callback);
    return 1;
}

/* Return a callback of the freelist, or None. Python cannot tell whether other code refers to it
   meanwhile. */
static inline void *whorl_freelist_pop(int guarded) {
    whorl_freelist *list = whorl_freelists + (guarded != 0);
    PyObject *entry;
    if (list->count == 0)
        return WHORL_NONE;
    entry = list->entries[--list->count];
    if (whorl_is_held_alone(entry, 1))
        return entry;
    Py_DECREF(entry); /* Other code has found it among the objects that the collector shows. */
    return WHORL_NONE;
}

/* Set the attributes of a callback; until now all of them hold None. Python would drop each old value by
   itself. */
#define WHORL_PUT(place, object) (Py_INCREF(object), WHORL_DROP_NONE(), (place) = (object))
#define WHORL_FILL_IN(entry, owner, called, arguments, context) \
    (WHORL_PUT((entry)->_loop, owner), WHORL_PUT((entry)->_callback, called), \
     WHORL_PUT((entry)->_args, arguments), WHORL_PUT((entry)->_snapshot, context))

/* Drop all objects that a callback refers to. In Python the program's code could run between one and the
   next. */
#define WHORL_FORGET(entry) \
    do { \
        PyObject *owner = (PyObject *)(entry)->_loop, *called = (entry)->_callback; \
        PyObject *arguments = (entry)->_args, *context = (entry)->_snapshot; \
        (entry)->_loop = (void *)WHORL_NONE; \
        (entry)->_callback = WHORL_NONE; \
        (entry)->_args = WHORL_NONE; \
        (entry)->_snapshot = WHORL_NONE; \
        Py_DECREF(owner); \
        Py_DECREF(called); \
        Py_DECREF(arguments); \
        Py_DECREF(context); \
    } while (0)

/* Run a callback. Its context is None while it is an empty one that is not made yet, and again afterwards
   where that one can serve others. Return whether nothing was raised; else the error is set. Python's `try`
   would cost a look at each callback. */
WHORL_ALWAYS_INLINE static inline int whorl_run_with(PyObject *callback, PyObject *args, PyObject **place) {
    PyObject *context = *place, *result;
    int is_new = context == Py_None;
    if (is_new) {
        context = whorl_empty_context();
        if (context == NULL)
            return 0;
        *place = context;
        WHORL_DROP_NONE();
    }
    Py_INCREF(context);
    Py_INCREF(callback);
    Py_INCREF(args);
    result = whorl_run_in_context(context, callback, args);
    Py_DECREF(args);
    Py_DECREF(callback);
    if (is_new && whorl_settle_context(context, *place == context)) {
        *place = WHORL_NONE;
        Py_DECREF(context);
    }
    Py_DECREF(context);
    Py_XDECREF(result);
    return result != NULL;
}
#define WHORL_HAS_RUN(entry) whorl_run_with((entry)->_callback, (entry)->_args, &(entry)->_snapshot)
