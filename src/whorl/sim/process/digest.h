/* Calls of a kernel as bytes: those that `marshal` writes in its format 2, without a tuple and its numbers
   for each call, which take longer than the writing. */
#pragma once
#include <Python.h>
#include <marshal.h>
#include <stdint.h>
#include <string.h>

/* Bytes on their way to the end of a bytearray. */
typedef struct {
    PyObject *target;
    Py_ssize_t used;
    int depth;
    char room[256];
} whorl_writer;

/* How deep objects may lie in each other: as deep as in `marshal`, which knows no circles either. */
#define WHORL_MOST_DEEP 2000

/* Append bytes to a bytearray. */
static int whorl_append(PyObject *target, const char *data, Py_ssize_t size) {
    Py_ssize_t end = PyByteArray_GET_SIZE(target);
    if (PyByteArray_Resize(target, end + size) < 0)
        return -1;
    memcpy(PyByteArray_AS_STRING(target) + end, data, (size_t)size);
    return 0;
}

/* Write bytes, by way of the room. */
static int whorl_put(whorl_writer *to, const char *data, Py_ssize_t size) {
    if (size > (Py_ssize_t)sizeof to->room - to->used) {
        if (whorl_append(to->target, to->room, to->used) < 0)
            return -1;
        to->used = 0;
        if (size > (Py_ssize_t)sizeof to->room)
            return whorl_append(to->target, data, size);
    }
    memcpy(to->room + to->used, data, (size_t)size);
    to->used += size;
    return 0;
}

/* Write the letter of a type, and a number of 32 bits. */
static int whorl_put_head(whorl_writer *to, char type, uint32_t number) {
    char head[5] = {type, (char)number, (char)(number >> 8), (char)(number >> 16), (char)(number >> 24)};
    return whorl_put(to, head, sizeof head);
}

/* Write an integer: as one of 32 bits, or as digits of 15 bits, whose number has the sign. */
static int whorl_put_int(whorl_writer *to, int64_t number) {
    if (number == (int32_t)number)
        return whorl_put_head(to, 'i', (uint32_t)number);
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    char digits[10];
    int count = 0;
    for (; rest; rest >>= 15, count++) {
        digits[2 * count] = (char)(rest & 0xFF);
        digits[2 * count + 1] = (char)(rest >> 8 & 0x7F);
    }
    if (whorl_put_head(to, 'l', (uint32_t)(number < 0 ? -count : count)) < 0)
        return -1;
    return whorl_put(to, digits, 2 * count);
}

/* Write an object; below. */
static int whorl_put_object(whorl_writer *to, PyObject *object);

/* Write the parts of a tuple or a list. Writing them runs no code that could change it. */
static int whorl_put_items(whorl_writer *to, PyObject *const *items, Py_ssize_t count) {
    if (++to->depth >= WHORL_MOST_DEEP) {
        PyErr_SetString(PyExc_ValueError, "an object of a call is nested too deeply");
        return -1;
    }
    for (Py_ssize_t at = 0; at < count; at++)
        if (whorl_put_object(to, items[at]) < 0)
            return -1;
    to->depth--;
    return 0;
}

/* Write what stands in nearly all calls; leave everything else to `marshal`. */
static int whorl_put_object(whorl_writer *to, PyObject *object) {
    if (PyLong_CheckExact(object)) {
        int overflows;
        long long number = PyLong_AsLongLongAndOverflow(object, &overflows);
        if (!overflows)
            return whorl_put_int(to, number);
    } else if (PyBytes_CheckExact(object) && PyBytes_GET_SIZE(object) <= INT32_MAX) {
        Py_ssize_t size = PyBytes_GET_SIZE(object);
        if (whorl_put_head(to, 's', (uint32_t)size) < 0)
            return -1;
        return whorl_put(to, PyBytes_AS_STRING(object), size);
    } else if (object == Py_None) {
        return whorl_put(to, "N", 1);
    } else if (PyTuple_CheckExact(object) || PyList_CheckExact(object)) {
        Py_ssize_t count = Py_SIZE(object);
        if (whorl_put_head(to, PyList_CheckExact(object) ? '[' : '(', (uint32_t)count) < 0)
            return -1;
        return whorl_put_items(to, PySequence_Fast_ITEMS(object), count);
    } else if (PyUnicode_CheckExact(object) && PyUnicode_IS_COMPACT_ASCII(object)) {
        Py_ssize_t size = PyUnicode_GET_LENGTH(object);
        if (whorl_put_head(to, 'u', (uint32_t)size) < 0)
            return -1;
        return whorl_put(to, (const char *)PyUnicode_1BYTE_DATA(object), size);
    }
    PyObject *written = PyMarshal_WriteObjectToString(object, 2);
    if (!written)
        return -1;
    int code = whorl_put(to, PyBytes_AS_STRING(written), PyBytes_GET_SIZE(written));
    Py_DECREF(written);
    return code;
}

/* Append a call to a bytearray; return 0, and leave it as it was, if a part is none of Python's own types. */
static int whorl_write_call(PyObject *target, int64_t time, int64_t host, int64_t call, PyObject *details) {
    Py_ssize_t before = PyByteArray_GET_SIZE(target), count = PyTuple_GET_SIZE(details);
    whorl_writer to = {.target = target, .used = 0, .depth = 0};
    if (whorl_put_head(&to, '(', (uint32_t)count + 3) == 0 && whorl_put_int(&to, time) == 0 &&
        whorl_put_int(&to, host) == 0 && whorl_put_int(&to, call) == 0 &&
        whorl_put_items(&to, ((PyTupleObject *)details)->ob_item, count) == 0 &&
        whorl_append(target, to.room, to.used) == 0)
        return 1;
    if (!PyErr_ExceptionMatches(PyExc_ValueError))
        return -1;
    PyErr_Clear();
    return PyByteArray_Resize(target, before);
}
