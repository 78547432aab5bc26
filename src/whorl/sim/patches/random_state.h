/* The state of a generator of `_random`: in its memory, nothing but numbers follows the head of the object.
   Python's own functions make a tuple of 625 integers of them, which takes as long as several turns. */
#pragma once
#include <Python.h>
#include <string.h>

/* Return the numbers of a generator as bytes. */
static inline PyObject *whorl_random_numbers(PyObject *generator, Py_ssize_t size) {
    return PyBytes_FromStringAndSize((const char *)generator + sizeof(PyObject), size);
}

/* Give a generator its numbers back. */
static inline void whorl_set_random_numbers(PyObject *generator, PyObject *numbers) {
    Py_ssize_t size = PyBytes_GET_SIZE(numbers);
    memcpy((char *)generator + sizeof(PyObject), PyBytes_AS_STRING(numbers), (size_t)size);
}
