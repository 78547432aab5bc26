/* The text of a run's calls, as `repr` makes it. `repr` makes an object for each part of each call, and a run
   makes thousands of calls. */
#pragma once
#include <Python.h>
#include <string.h>

/* Text that grows. */
struct whorl_text {
    char *start;
    Py_ssize_t size, room;
};

/* So deep are calls looked into; `repr` shows what lies deeper. */
enum { WHORL_SHOWN_DEPTH = 8 };

/* Make room for so many bytes and return where they begin; NULL if there is no memory. */
static inline char *whorl_room(struct whorl_text *text, Py_ssize_t more) {
    if (text->room - text->size < more) {
        Py_ssize_t room = 2 * text->room + more;
        char *start = PyMem_Realloc(text->start, (size_t)room);
        if (!start) {
            PyErr_NoMemory();
            return NULL;
        }
        text->start = start;
        text->room = room;
    }
    return text->start + text->size;
}

/* Append bytes. Python's texts do not grow in place. */
static inline int whorl_put(struct whorl_text *text, const char *part, Py_ssize_t size) {
    char *at = whorl_room(text, size);
    if (!at)
        return -1;
    memcpy(at, part, (size_t)size);
    text->size += size;
    return 0;
}

/* Show anything by `repr`. */
static inline int whorl_show_any(struct whorl_text *text, PyObject *part) {
    Py_ssize_t size;
    PyObject *shown = PyObject_Repr(part);
    const char *bytes = shown ? PyUnicode_AsUTF8AndSize(shown, &size) : NULL;
    int result = bytes ? whorl_put(text, bytes, size) : -1;
    Py_XDECREF(shown);
    return result;
}

/* Show an integer. `repr` makes an object of its digits. */
static inline int whorl_show_number(struct whorl_text *text, PyObject *part) {
    char digits[24];
    int overflow, first = sizeof digits;
    long long number = PyLong_AsLongLongAndOverflow(part, &overflow);
    unsigned long long rest = number < 0 ? 0 - (unsigned long long)number : (unsigned long long)number;
    if (overflow)
        return whorl_show_any(text, part);
    do
        digits[--first] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (number < 0)
        digits[--first] = '-';
    return whorl_put(text, digits + first, (Py_ssize_t)sizeof digits - first);
}

/* Show text of ASCII that needs no escapes. */
static inline int whorl_show_text(struct whorl_text *text, PyObject *part) {
    Py_ssize_t size = PyUnicode_GET_LENGTH(part);
    const unsigned char *from = PyUnicode_IS_ASCII(part) ? PyUnicode_DATA(part) : NULL;
    char *to = from ? whorl_room(text, size + 2) : NULL;
    if (!from)
        return whorl_show_any(text, part);
    if (!to)
        return -1;
    *to++ = '\'';
    for (Py_ssize_t each = 0; each < size; each++) {
        if (from[each] < ' ' || from[each] > '~' || from[each] == '\'' || from[each] == '\\')
            return whorl_show_any(text, part);
        *to++ = (char)from[each];
    }
    *to = '\'';
    text->size += size + 2;
    return 0;
}

/* Show bytes in which there is no quote. */
static inline int whorl_show_bytes(struct whorl_text *text, PyObject *part) {
    static const char hex[] = "0123456789abcdef";
    Py_ssize_t size = PyBytes_GET_SIZE(part);
    const unsigned char *from = (const unsigned char *)PyBytes_AS_STRING(part);
    char *to;
    if (size > PY_SSIZE_T_MAX / 16 || memchr(from, '\'', (size_t)size))
        return whorl_show_any(text, part);
    to = whorl_room(text, 4 * size + 3);
    if (!to)
        return -1;
    *to++ = 'b';
    *to++ = '\'';
    for (Py_ssize_t each = 0; each < size; each++) {
        unsigned char byte = from[each];
        char escape = byte == '\\' ? '\\' : byte == '\t' ? 't' : byte == '\n' ? 'n' : byte == '\r' ? 'r' : 0;
        if (escape) {
            *to++ = '\\';
            *to++ = escape;
        } else if (byte < ' ' || byte > '~') {
            *to++ = '\\';
            *to++ = 'x';
            *to++ = hex[byte >> 4];
            *to++ = hex[byte & 15];
        } else {
            *to++ = (char)byte;
        }
    }
    *to++ = '\'';
    text->size = to - text->start;
    return 0;
}

/* Show any part: see below. */
static inline int whorl_show(struct whorl_text *text, PyObject *part, int depth);

/* Show the parts of a list or a tuple, of which each may change while `repr` shows a part. */
static inline int whorl_show_parts(struct whorl_text *text, PyObject *parts, int depth) {
    int is_list = PyList_CheckExact(parts), result = whorl_put(text, is_list ? "[" : "(", 1);
    Py_ssize_t each = 0;
    for (; !result && each < Py_SIZE(parts); each++) {
        PyObject *part = is_list ? PyList_GET_ITEM(parts, each) : PyTuple_GET_ITEM(parts, each);
        Py_INCREF(part);
        result = each ? whorl_put(text, ", ", 2) : 0;
        if (!result)
            result = whorl_show(text, part, depth + 1);
        Py_DECREF(part);
    }
    if (!result && !is_list && each == 1)
        result = whorl_put(text, ",", 1);
    return result ? result : whorl_put(text, is_list ? "]" : ")", 1);
}

/* Show any part, by the function for its type: those of Python's own types need no object. */
static inline int whorl_show(struct whorl_text *text, PyObject *part, int depth) {
    if (PyLong_CheckExact(part))
        return whorl_show_number(text, part);
    if (PyUnicode_CheckExact(part))
        return whorl_show_text(text, part);
    if (PyBytes_CheckExact(part))
        return whorl_show_bytes(text, part);
    if ((PyTuple_CheckExact(part) || PyList_CheckExact(part)) && depth < WHORL_SHOWN_DEPTH)
        return whorl_show_parts(text, part, depth);
    return whorl_show_any(text, part);
}

/* Return what `repr` shows of a list, as bytes in UTF-8. */
static inline PyObject *whorl_shown(PyObject *calls) {
    struct whorl_text text = {NULL, 0, 0};
    PyObject *made = NULL;
    if (!whorl_show(&text, calls, 0))
        made = PyBytes_FromStringAndSize(text.start, text.size);
    PyMem_Free(text.start);
    return made;
}
