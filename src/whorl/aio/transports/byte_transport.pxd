cimport cython

from whorl.aio.interop.class_snapshot cimport ClassSnapshot
from whorl.aio.streams.adoption cimport adopted_connection_made
from whorl.aio.transports cimport states
from whorl.core cimport limits, states as handle_states
from whorl.core.callback cimport AbstractLoop, Callback, call_with_one, flag
from whorl.core.handle cimport Handle
from whorl.core.loop.execution cimport LoopExecution
from whorl.handles.streams.engine cimport Stream

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_CheckExact
from cpython.object cimport PyMethodDef, PyObject, PyTypeObject
from cpython.tuple cimport PyTuple_CheckExact
from libc.string cimport memcpy

cdef extern from "Python.h":
    int PyContext_Enter(PyObject *context) except -1
    int PyContext_Exit(PyObject *context) except -1
    PyTypeObject *type_of "Py_TYPE"(object thing)
    ctypedef struct PyMethodDescrObject:
        PyMethodDef *d_method
    PyTypeObject PyMethodDescr_Type
    bint Py_IS_TYPE(object thing, PyTypeObject *kind)
    object PyDescr_NewMethod(PyTypeObject *cls, PyMethodDef *method)
    # For items that somebody else holds.
    Py_ssize_t count_of "PySequence_Fast_GET_SIZE"(object lines) noexcept
    PyObject *line_of "PySequence_Fast_GET_ITEM"(object lines, Py_ssize_t index) noexcept
    bint is_bytes "PyBytes_CheckExact"(PyObject *line) noexcept
    Py_ssize_t length_of "PyBytes_GET_SIZE"(PyObject *line) noexcept
    const char *content_of "PyBytes_AS_STRING"(PyObject *line) noexcept

cdef extern from "whorl/core/references.h":
    bint HAS_GIL "WHORL_HAS_GIL"

cdef Py_ssize_t HIGH_WATER, LOW_WATER


cdef inline object method_of(type cls, object method):
    # Python cannot make descriptors of methods that are written in C.
    if not Py_IS_TYPE(method, &PyMethodDescr_Type):
        return method
    return PyDescr_NewMethod(<PyTypeObject *>cls, (<PyMethodDescrObject *>method).d_method)


cpdef object as_bytes_like(object data)


cdef inline Py_ssize_t size_of(object data) except -1:
    return PyBytes_GET_SIZE(data) if PyBytes_CheckExact(data) else len(data)


cdef inline bytes joined(object lines):
    # Nothing else runs between the first look at a line and the last, so a list keeps its lines. Without the
    # GIL that is not so, and nothing is joined.
    cdef Py_ssize_t index, limit, size = 0
    cdef PyObject *line
    cdef bytes data
    cdef char *end
    if not HAS_GIL or not (PyList_CheckExact(lines) or PyTuple_CheckExact(lines)):
        return None
    limit = limits.JOINED_LINES + limits.JOINED_FOR_EACH * count_of(lines)
    if limit > limits.MOST_JOINED:
        limit = limits.MOST_JOINED
    for index in range(count_of(lines)):
        line = line_of(lines, index)
        if not is_bytes(line) or length_of(line) > limit - size:
            return None
        size += length_of(line)
    if count_of(lines) == 1:
        return <bytes>line_of(lines, 0)
    data = PyBytes_FromStringAndSize(NULL, size)
    end = PyBytes_AS_STRING(data)
    for index in range(count_of(lines)):
        line = line_of(lines, index)
        memcpy(end, content_of(line), length_of(line))
        end += length_of(line)
    return data


ctypedef object (*binding_t)(object method, PyObject *instance, PyObject *owner)


cdef class InheritedMethod:
    cdef object _method
    cdef str _name
    cdef object _base
    cdef ClassSnapshot _snapshot


cdef inline object bound(object method, object instance, object owner):
    cdef binding_t get = <binding_t>type_of(method).tp_descr_get
    return method if get is NULL else get(method, NULL if instance is None else <PyObject *>instance, <PyObject *>owner)


cdef class BaseTransport(Stream):
    cdef dict _extra_dict
    cdef public object _protocol
    cdef readonly object _context
    cdef object _connection_made
    cdef object _connection_waiter
    cdef readonly unsigned char _state
    cdef readonly flag _paused
    cdef flag _started
    cdef flag _queues_itself

    cdef object _set_up(self, AbstractLoop loop)
    @cython.locals(seen=int)
    cdef object _execute(self)
    @cython.locals(queues=LoopExecution)
    cdef object _run_as_entry(self)
    cdef object _handle_events(self, int seen)
    cdef object _schedule_connection_made(self, object waiter)
    @cython.locals(queues=LoopExecution)
    cdef object _connect_protocol(self)
    cdef object _start(self, object waiter)
    cdef object _pause(self)
    cdef object _resume(self)
    cpdef object _fatal_error(self, object error, str message=*)
    cpdef object _report(self, object error, str message)
    cpdef object _force_close(self, object error)
    @cython.locals(queues=LoopExecution)
    cdef object _schedule_connection_lost(self, object error)
    cdef object _leave_poller(self)
    cdef object _end(self, object error)
    cdef object _close_handle(self)


cdef class WriteTransport(BaseTransport):
    cdef Py_ssize_t _high
    cdef Py_ssize_t _low
    cdef readonly unsigned char _lost_writes
    cdef readonly flag _protocol_paused
    cdef flag _refuses_writes

    cdef object _set_up(self, AbstractLoop loop)
    @cython.locals(chunk=bytes, chunks=list, size=Py_ssize_t, few=bytes)
    cdef object _send_lines(self, object list_of_data)
    @cython.locals(code=Py_ssize_t)
    cdef object _send_joined(self, bytes data, Py_ssize_t size)

    # The methods that a subclass defines.
    cdef object _check_writable(self, str method)
    cdef bint _count_lost_write(self) except -1
    cdef object _sent_all(self)

    cdef object _sent_some(self)
    cdef object _check_high_water(self)
    cdef object _pause_protocol(self)
    cdef object _resume_protocol(self)


# A transport has its context for as long as it lives.

cdef inline object events_in_context(BaseTransport transport, int seen):
    PyContext_Enter(<PyObject *>transport._context)
    try:
        transport._handle_events(seen)
    finally:
        PyContext_Exit(<PyObject *>transport._context)


cdef inline object connect_in_context(BaseTransport transport, object connection_made):
    return call_with_one(transport._context, connection_made, transport)


cdef inline object end_in_context(BaseTransport transport):
    PyContext_Enter(<PyObject *>transport._context)
    try:
        transport._end(None)
    finally:
        PyContext_Exit(<PyObject *>transport._context)
