/* Bytes objects that are used again. */
#ifndef WHORL_CORE_KERNEL_MESSAGE_BUFFERS_H
#define WHORL_CORE_KERNEL_MESSAGE_BUFFERS_H

#include <Python.h>
#include <string.h>

#ifdef Py_GIL_DISABLED
#define WHORL_REUSES 0
#else
#define WHORL_REUSES 1
#endif

#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#endif
/* Give other content to bytes that only the caller knows, and that were made for as much or more.
   Python's bytes never change. */
static inline void whorl_rewrite(PyObject *bytes, const char *content, Py_ssize_t size) {
    memcpy(PyBytes_AS_STRING(bytes), content, size);
    PyBytes_AS_STRING(bytes)[size] = 0;
    ((PyBytesObject *)bytes)->ob_shash = -1;
    Py_SET_SIZE((PyVarObject *)bytes, size);
}
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

/* Return whether bytes have no reference but that of their one holder. In Python, asking for the count is a
   reference. */
static inline int whorl_is_sole(PyObject *bytes) {
    return WHORL_REUSES && Py_REFCNT(bytes) == 1;
}

#endif
