cimport cython
from libc.stdint cimport int64_t
from cpython.object cimport PyObject

from whorl.aio.futures.future cimport Future
from whorl.aio.futures.task_factory cimport task_of_factory
from whorl.core.callback cimport current_context
from whorl.core.loop.loop cimport Loop

cdef extern from "Python.h":
    int enter_context "PyContext_Enter"(object context) except -1
    int exit_context "PyContext_Exit"(object context) except -1
    Py_ssize_t Py_REFCNT(PyObject *thing)


cdef extern from "whorl/aio/futures/task.h":
    object send "whorl_send"(object coro)
    bint has_returned "whorl_has_returned"() noexcept

# All tasks stand in a ring. Python would make an object for each, a weak reference.
cdef struct Member:
    Member *previous
    Member *next
    PyObject *owner


cdef int PENDING
cdef Member _ring
cdef int64_t _tasks_made
cdef bint _registers_each
cdef bint KEEPS_DICTIONARY
cdef bint TAKES_CANCEL_BACK
cdef object UNSET
cdef dict _current
cdef object _enter
cdef object _leave


cdef class Task(Future):
    cdef Loop _machine
    cdef readonly object _coro
    cdef object _context
    cdef object _error
    cdef readonly object _fut_waiter
    cdef readonly bint _must_cancel
    cdef int64_t _num_cancels_requested
    cdef int64_t _number
    cdef str _name
    cdef public bint _log_destroy_pending
    cdef Member _member

    cdef object _check(self, object coro, object context)
    cdef object _start(self, object coro, object name, object context)
    cdef object _execute(self)
    @cython.locals(future=Future)
    cdef object _take_error(self)
    cdef object _step(self, object error)
    @cython.locals(failed=bint, finished=bint)
    cdef object _advance(self, object error)
    cdef object _wait_for_own(self, Future future)
    cdef object _wait_for(self, object awaited)
    cdef object _schedule_step(self)
    cdef object _run_eagerly(self)
    cdef object _end(self)


@cython.locals(machine=Loop, task=Task)
cpdef Task new_task(object loop, object coro, object name, object context)


cdef inline int begin_ring() noexcept:
    _ring.previous = _ring.next = &_ring
    return 0


cdef inline int enlist(Task task) noexcept:
    cdef Member *member = &task._member
    if member.owner == NULL:
        member.owner = <PyObject *>task
        member.previous = _ring.previous
        member.next = &_ring
        member.previous.next = _ring.previous = member
    return 0


cdef inline int delist(Task task) noexcept:
    cdef Member *member = &task._member
    if member.owner != NULL:
        member.owner = NULL
        member.previous.next = member.next
        member.next.previous = member.previous
    return 0


cdef inline list listed():
    # To append starts no collector, which would change the ring.
    cdef list found = []
    cdef Member *member = _ring.next
    while member != &_ring:
        if Py_REFCNT(member.owner) > 0:  # not a task that is being freed
            found.append(<object>member.owner)
        member = member.next
    return found
