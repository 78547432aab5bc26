/* Functions that take their arguments in C. */
#pragma once
#include <Python.h>
#include <string.h>

/* Let a function call another, which hands arguments that it does not know to the function that Cython made.
   CPython keeps the address in the function (PEP 590), where Python cannot write. */
static inline void whorl_exchange(PyObject *function, vectorcallfunc ours, vectorcallfunc *compiled) {
    Py_ssize_t offset = Py_TYPE(function)->tp_vectorcall_offset;
    vectorcallfunc *place = (vectorcallfunc *)((char *)function + offset);
    if (!PyVectorcall_Function(function))
        return;
    *compiled = *place;
    *place = ours;
}

/* Return whether an argument has this name. Names are not always interned (CPython's tasks give one that is
   not), and Python would compare by a call. */
static inline int whorl_is_named(PyObject *name, const char *text) {
    Py_ssize_t size = (Py_ssize_t)strlen(text);
    return PyUnicode_IS_COMPACT_ASCII(name) && PyUnicode_GET_LENGTH(name) == size
           && memcmp(PyUnicode_1BYTE_DATA(name), text, size) == 0;
}
