/* Bytes objects that are used again. */
#pragma once
#include <Python.h>
#include <string.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
/* Give other content to bytes that only the caller knows, and that were made for as much or more.
   Python's bytes never change. */
static inline void whorl_rewrite(PyObject *bytes, const char *content, Py_ssize_t size) {
    memcpy(PyBytes_AS_STRING(bytes), content, size);
    PyBytes_AS_STRING(bytes)[size] = 0;
    ((PyBytesObject *)bytes)->ob_shash = -1;
    Py_SET_SIZE((PyVarObject *)bytes, size);
}
#pragma GCC diagnostic pop
