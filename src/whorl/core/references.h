/* Counting the references to an object. */
#pragma once
#include <Python.h>
#include <stdint.h>

/* CPython 3.12 and 3.13 count references up in 32 bits and down in 64. A decrement soon after an increment
   then waits until all earlier stores have reached the cache. Counting up in 64 bits, it need not. */
#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030E0000 && SIZEOF_VOID_P > 4 \
    && !defined(Py_GIL_DISABLED) && !defined(Py_REF_DEBUG) && !defined(Py_LIMITED_API)

/* Count one reference more. Python cannot say how its own references are counted. */
static inline void whorl_incref(PyObject *object) {
    PY_UINT32_T count = object->ob_refcnt_split[PY_BIG_ENDIAN];
    if ((int32_t)count >= 0)
        object->ob_refcnt = (Py_ssize_t)count + 1;
}

/* The same, and the object. Python cannot say how its own references are counted. */
static inline PyObject *whorl_new_reference(PyObject *object) {
    whorl_incref(object);
    return object;
}

#undef Py_INCREF
#undef Py_NewRef
#define Py_INCREF(object) whorl_incref(_PyObject_CAST(object))
#define Py_NewRef(object) whorl_new_reference(_PyObject_CAST(object))
#endif

/* Without the GIL, other threads may use any object at any time. */
#ifdef Py_GIL_DISABLED
#define WHORL_HAS_GIL 0
#else
#define WHORL_HAS_GIL 1
#endif

/* Return whether an object has just so many references, and no weak one.
   In Python, asking for the count is itself a reference. */
static inline int whorl_has_references(PyObject *object, Py_ssize_t count) {
    Py_ssize_t offset = Py_TYPE(object)->tp_weaklistoffset;
    return WHORL_HAS_GIL && Py_REFCNT(object) == count
           && (offset <= 0 || *(PyObject **)((char *)object + offset) == NULL);
}

/* Return whether only the caller refers to an object. Python's own references would count. */
static inline int whorl_has_single_reference(PyObject *object) {
    return whorl_has_references(object, 1);
}

/* Return whether the caller alone has so many references to an object that this thread made, and there is no
   weak one. Python would count its own.

   Without the GIL the thread that made an object counts its references locally, all others in the shared
   count. So the references are as many as both counts say together. If the shared one is zero, no other
   thread can take a reference of its own: it needs one that exists, or a weak one, which shows in the shared
   count from the first on. And only this thread counts locally. */
static inline int whorl_is_held_alone(PyObject *object, Py_ssize_t count) {
#ifdef Py_GIL_DISABLED
    return __atomic_load_n(&object->ob_tid, __ATOMIC_RELAXED) == _Py_ThreadId()
           && (Py_ssize_t)__atomic_load_n(&object->ob_ref_local, __ATOMIC_RELAXED) == count
           && __atomic_load_n(&object->ob_ref_shared, __ATOMIC_ACQUIRE) == 0;
#else
    return whorl_has_references(object, count);
#endif
}
