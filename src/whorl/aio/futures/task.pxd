cimport cython
from libc.stdint cimport int64_t
from cpython.object cimport PyObject

from whorl.aio.futures cimport states
from whorl.aio.futures.future cimport Future
from whorl.aio.futures.task_factory cimport task_of_factory
from whorl.core.callback cimport current_context
from whorl.core.loop.loop cimport Current, Loop, keep_current_tasks
from whorl.core.threads cimport HAS_GIL, Mutex, lock, next_number, unlock

cdef extern from "Python.h":
    int enter_context "PyContext_Enter"(object context) except -1
    int exit_context "PyContext_Exit"(object context) except -1
    void Py_DECREF(PyObject *thing) noexcept


cdef extern from "whorl/aio/futures/task.h":
    object send "whorl_send"(object coro)
    bint has_returned "whorl_has_returned"() noexcept
    enum: RINGS "WHORL_RINGS"
    void may_be_found "whorl_may_be_found"(PyObject *task) noexcept
    bint survives "whorl_survives"(PyObject *task) noexcept

cdef extern from "whorl/core/loop/current_task.h":
    bint KEEPS_CURRENT "WHORL_KEEPS_CURRENT"
    void know_hash "whorl_know_hash"(object type) noexcept
    bint keep_current "whorl_keep_current"(Current *current, object loop, object task) noexcept
    void know_current_tasks "whorl_know_current_tasks"(dict tasks) noexcept
    bint forget_current "whorl_forget_current"(Current *current, object task) noexcept

# All tasks stand in a ring. Python would make an object for each, a weak reference.
cdef struct Member:
    Member *previous
    Member *next
    PyObject *owner

cdef struct Ring:
    Member first
    Mutex members[1]
    char apart[64]  # from the next ring, which other threads change


cdef Ring _rings[RINGS]
cdef int64_t _tasks_made
cdef bint _registers_each
cdef set _like_own
cdef bint KEEPS_DICTIONARY, TAKES_CANCEL_BACK
cdef object UNSET
cdef dict _current
cdef object _enter
cdef object _leave


cdef class Task(Future):
    cdef Loop _machine
    cdef readonly object _coro
    cdef readonly object _context
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
    @cython.locals(is_kept=bint)
    cdef object _step(self, object error)
    @cython.locals(failed=bint, finished=bint)
    cdef object _advance(self, object error)
    cdef object _wait_for_own(self, Future future)
    cdef object _wait_for(self, object awaited)
    cdef object _schedule_step(self)
    cdef object _run_eagerly(self)
    cdef object _end(self)


cpdef tuple coroutine_and_name(Task task)


@cython.locals(machine=Loop, task=Task)
cpdef Task new_task(object loop, object coro, object name, object context)


cdef inline bint keeps_task(object loop, Task task) noexcept:
    return KEEPS_CURRENT and isinstance(loop, Loop) and keep_current((<Loop>loop)._current_task, loop, task)


cdef inline bint forgets_task(object loop, Task task) noexcept:
    # The loop is the one that keeps it: the program may have initialized the task again meanwhile.
    return KEEPS_CURRENT and forget_current((<Loop>loop)._current_task, task)


cdef inline object begin_keeping():
    if KEEPS_CURRENT:
        keep_current_tasks(_current)
        know_current_tasks(_current)
        know_hash(Loop)


cdef inline int begin_rings() noexcept:
    cdef int index
    for index in range(RINGS):
        _rings[index].first.previous = _rings[index].first.next = &_rings[index].first
    return 0


cdef inline Ring *ring_of(Task task) noexcept:
    return &_rings[(<size_t><PyObject *>task >> 8) % RINGS]


cdef inline int enlist(Task task) noexcept:
    cdef Member *member = &task._member
    cdef Ring *ring = ring_of(task)
    if member.owner == NULL:
        may_be_found(<PyObject *>task)
        lock(ring.members)
        member.owner = <PyObject *>task
        member.previous = ring.first.previous
        member.next = &ring.first
        member.previous.next = ring.first.previous = member
        unlock(ring.members)
    return 0


cdef inline int delist(Task task) noexcept:
    cdef Member *member = &task._member
    cdef Ring *ring = ring_of(task)
    if member.owner != NULL:
        lock(ring.members)
        member.owner = NULL
        member.previous.next = member.next
        member.next.previous = member.previous
        unlock(ring.members)
    return 0


cdef inline int show_as(Task task, object coro, str name) noexcept:
    # Another thread looks at both under the lock, once the task stands in its ring. The former ones live until
    # the lock is open: the end of a coroutine may run any code.
    cdef object former_coro
    cdef str former_name
    cdef Ring *ring = ring_of(task)
    if HAS_GIL or task._member.owner == NULL:
        task._coro = coro
        task._name = name
        return 0
    former_coro = task._coro
    former_name = task._name
    lock(ring.members)
    task._coro = coro
    task._name = name
    unlock(ring.members)
    return 0


cdef inline tuple looked_up(Task task):
    cdef object coro
    cdef str name
    cdef Ring *ring = ring_of(task)
    lock(ring.members)
    coro = task._coro
    name = task._name
    unlock(ring.members)
    return coro, name


cdef inline int64_t next_task_number() noexcept:
    return next_number(&_tasks_made)


cdef inline list listed():
    # To append starts no collector, which would change a ring. The lock keeps the memory of its tasks.
    cdef list found = []
    cdef Member *member
    cdef int index
    for index in range(RINGS):
        lock(_rings[index].members)
        try:
            member = _rings[index].first.next
            while member != &_rings[index].first:
                if survives(member.owner):
                    found.append(<object>member.owner)
                    Py_DECREF(member.owner)
                member = member.next
        finally:
            unlock(_rings[index].members)
    return found
