from libc.string cimport memcpy
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.ref cimport PyObject

from whorl.core cimport limits
from whorl.core.kernel.inotify cimport NotifyCalls

cdef extern from "whorl/core/kernel/message_buffers.h":
    void rewrite "whorl_rewrite"(PyObject *message, const char *content, Py_ssize_t size) noexcept

cdef extern from "whorl/core/references.h":
    bint HAS_GIL "WHORL_HAS_GIL"
    Py_ssize_t Py_REFCNT(PyObject *thing) noexcept

cdef extern from *:
    PyObject *nth "PyList_GET_ITEM"(list messages, Py_ssize_t place) noexcept

cdef enum:
    MOST_MESSAGES = 128


cdef class MessageMemory(NotifyCalls):
    cdef list _messages
    cdef unsigned short _sizes[MOST_MESSAGES]
    cdef Py_ssize_t _place
    cdef Py_ssize_t _kept


cdef inline bint is_sole(PyObject *message) noexcept:
    # Whether only the caller has it.
    return HAS_GIL and Py_REFCNT(message) == 1


cdef inline bytes message_of(MessageMemory kernel, const char *content, Py_ssize_t size):
    if size < limits.SHORTEST_REUSED or size >= limits.LONG_READ:
        return PyBytes_FromStringAndSize(content, size)
    return message_again(kernel, content, size)


cdef inline bytes message_again(MessageMemory kernel, const char *content, Py_ssize_t size):
    # Most messages are dropped before the next one comes, those of readers before the next turn's. To free
    # their memory and to ask for it again would take more instructions than all else that a receiver does in
    # this process.
    cdef list messages = kernel._messages
    cdef Py_ssize_t place = kernel._place
    cdef Py_ssize_t count = len(messages)
    cdef Py_ssize_t capacity
    cdef bytes message
    if place >= count:
        return keep_message(kernel, content, size)
    if not is_sole(nth(messages, place)):  # The list is its one holder.
        place = place + 1 if place + 1 < count else 0
        kernel._place = place
        if not is_sole(nth(messages, place)) and count < MOST_MESSAGES:
            kernel._place = count
            return keep_message(kernel, content, size)
    capacity = kernel._sizes[place]
    if size <= capacity < 2 * size and is_sole(nth(messages, place)):
        rewrite(nth(messages, place), content, size)
        return <bytes>nth(messages, place)
    if kernel._kept - capacity + size > limits.MOST_KEPT:
        return keep_message(kernel, content, size)
    message = PyBytes_FromStringAndSize(content, size)
    messages[place] = message
    kernel._kept += size - capacity
    kernel._sizes[place] = <unsigned short>size
    return message


cdef inline bytes keep_message(MessageMemory kernel, const char *content, Py_ssize_t size):
    # Keep one message more. Drop others if all are too large together, or if references cannot be counted.
    cdef bytes message = PyBytes_FromStringAndSize(content, size)
    if kernel._kept + size > limits.MOST_KEPT or not is_sole(<PyObject *>message):
        kernel._messages.clear()
        kernel._place = kernel._kept = 0
    kernel._sizes[len(kernel._messages)] = <unsigned short>size
    kernel._messages.append(message)
    kernel._kept += size
    return message
