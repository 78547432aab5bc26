/* Objects that the threads of all loops use. */
#pragma once
#include "whorl/core/references.h"

/* Let threads use an object without counting its references, from now on; return whether they do. Each count
   of another thread changes the object's memory, for which the threads then wait. It is never freed. CPython
   does the same to all functions, classes and code of Python when a thread starts in 3.13 (gh-117783), but
   knows neither the functions of compilers nor classes made in C. Python cannot ask for it.

   Other threads may be counting at this moment. Only the thread that owns an object changes the local count,
   so this is done in that thread or not at all. All other threads ask for the local count first. If one has
   asked before, it adds to the shared count or takes from it, which is not touched here. At worst it then
   hands the object to its owner, who adds both counts: four thousand million references, none of which is
   ever taken away. So such an object is counted again, and still never freed. */
static inline int whorl_stop_counting(PyObject *object) {
#if defined(Py_GIL_DISABLED) && PY_VERSION_HEX < 0x030E0000
    if (__atomic_load_n(&object->ob_tid, __ATOMIC_RELAXED) == _Py_ThreadId())
        __atomic_store_n(&object->ob_ref_local, _Py_IMMORTAL_REFCNT_LOCAL, __ATOMIC_RELAXED);
    return __atomic_load_n(&object->ob_ref_local, __ATOMIC_RELAXED) == _Py_IMMORTAL_REFCNT_LOCAL;
#else
    (void)object;
    return 0; /* Nobody else counts at the same time, or newer Pythons count in another way. */
#endif
}
