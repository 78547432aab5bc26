/* The versions of classes. */
#pragma once
#include <Python.h>
#include <stdint.h>

/* Without the GIL, the loops of all threads read and write them: a seen number (core/threads.h), which is
   declared here as that header counts references in another way. */
#ifdef Py_GIL_DISABLED
typedef volatile int64_t whorl_versions;
#else
typedef int64_t whorl_versions;
#endif
