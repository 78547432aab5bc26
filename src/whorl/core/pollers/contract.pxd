cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t
from cpython.object cimport PyObject

from whorl.core cimport states
from whorl.core.callback cimport AbstractLoop, flag
from whorl.core.handle cimport Handle
from whorl.core.pollers.skips cimport PollSkips

cdef extern from "Python.h":  # borrowed references, which an event's way into the queue need not count
    PyObject *PyList_GET_ITEM(PyObject *entries, Py_ssize_t place)
    Py_ssize_t PyList_GET_SIZE(PyObject *entries)


cdef class IOHandle(Handle):
    cdef public int _fd
    cdef uint32_t _generation
    cdef public unsigned char _interest
    cdef readonly unsigned char _seen
    cdef flag _queued
    cdef public flag _edge
    cdef public flag _is_idle_watch

    cdef object _set_up(self, AbstractLoop loop)
    @cython.locals(seen=int)
    cdef object _execute(self)
    cpdef object _on_events(self, int seen)


cdef class Poller:
    cdef readonly bint edge_triggered
    cdef readonly bint can_keep_idle_watches
    cdef readonly bint can_spin
    cdef readonly PollSkips skips
    cdef Py_ssize_t _first
    cdef list _table

    cpdef object add(self, IOHandle handle, int interest)
    cpdef object modify(self, IOHandle handle, int interest)
    cpdef object remove(self, IOHandle handle)
    cpdef object remove_later(self, IOHandle handle)
    cpdef object forget(self, IOHandle handle)
    @cython.locals(interest=int)
    cpdef object take_over(self, IOHandle handle, IOHandle former)
    cpdef Py_ssize_t poll(self, int64_t timeout_ns, list into) except -1
    cpdef object hand_over(self)
    cpdef object renew(self)
    cpdef object close(self)
    cpdef int fileno(self) except -2
    cpdef IOHandle find(self, int fd)
    @cython.locals(table=list, missing=Py_ssize_t, place=Py_ssize_t)
    cpdef object _register(self, IOHandle handle, int interest)
    cpdef object _unregister(self, IOHandle handle)
    cpdef object _saw(self, IOHandle handle, int seen, list into)


cdef inline IOHandle watcher(Poller poller, int fd):
    # Nothing but `_register` puts anything into the table.
    cdef PyObject *table = <PyObject *>poller._table
    cdef Py_ssize_t place = fd - poller._first
    if poller._table is None:
        raise TypeError("the poller was never initialized")
    if 0 <= place < PyList_GET_SIZE(table):
        return <IOHandle>PyList_GET_ITEM(table, place)
    return None


cdef inline uint32_t next_generation(uint32_t generation) noexcept:
    return <uint32_t>(<uint64_t>generation + 1)


cdef inline object saw(IOHandle handle, int seen, list into):
    handle._seen |= seen
    if not handle._queued:
        into.append(handle)  # This may find no memory.
        handle._queued = True
