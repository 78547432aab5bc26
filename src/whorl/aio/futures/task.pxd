cimport cython
from libc.stdint cimport int64_t

from whorl.aio.futures.future cimport Future
from whorl.aio.futures.task_factory cimport task_of_factory
from whorl.core.callback cimport current_context
from whorl.core.loop.loop cimport Loop

cdef extern from "Python.h":
    int enter_context "PyContext_Enter"(object context) except -1
    int exit_context "PyContext_Exit"(object context) except -1


cdef extern from *:
    """
    /* The last send's outcome, read at once after it, before any other code can run. */
    static int whorl_returned;

    static inline PyObject *whorl_send(PyObject *coro) {
        PyObject *result = NULL;
        PySendResult outcome = PyIter_Send(coro, Py_None, &result);
        whorl_returned = outcome == PYGEN_RETURN;
        return outcome == PYGEN_ERROR ? NULL : result;
    }

    static inline int whorl_has_returned(void) {
        return whorl_returned;
    }

    /* All tasks, in a ring: who makes one makes no object to keep it by. */
    struct whorl_member {
        struct whorl_member *previous, *next;
        PyObject *owner;
    };

    static inline void whorl_begin_members_of(struct whorl_member *ring) {
        ring->previous = ring->next = ring;
    }

    static inline void whorl_enlist_in(struct whorl_member *ring, struct whorl_member *member, PyObject *owner) {
        if (member->owner != NULL)
            return;
        member->owner = owner;
        member->previous = ring->previous;
        member->next = ring;
        ring->previous->next = member;
        ring->previous = member;
    }

    static inline void whorl_delist_from(struct whorl_member *member) {
        if (member->owner == NULL)
            return;
        member->previous->next = member->next;
        member->next->previous = member->previous;
        member->owner = NULL;
    }

    /* The members as a list. Between counting and filling nothing runs that could change the ring but what
       making a list may: the collector. So it is made first, and what does not fit any more is left out. */
    static PyObject *whorl_listed_in(struct whorl_member *ring) {
        Py_ssize_t count = 0, filled = 0;
        struct whorl_member *member;
        PyObject *members, *shorter;
        for (member = ring->next; member != ring; member = member->next)
            count++;
        members = PyList_New(count);
        if (members == NULL)
            return NULL;
        for (member = ring->next; member != ring && filled < count; member = member->next)
            if (Py_REFCNT(member->owner) > 0) {  /* not one that is being freed */
                Py_INCREF(member->owner);
                PyList_SET_ITEM(members, filled++, member->owner);
            }
        if (filled == count)
            return members;
        shorter = PyList_GetSlice(members, 0, filled);
        Py_DECREF(members);
        return shorter;
    }

    #define whorl_begin_members(ring) whorl_begin_members_of(&(ring))
    #define whorl_enlist(ring, member, owner) whorl_enlist_in(&(ring), &(member), owner)
    #define whorl_delist(member) whorl_delist_from(&(member))
    #define whorl_listed(ring) whorl_listed_in(&(ring))
    """
    object send "whorl_send"(object coro)
    bint has_returned "whorl_has_returned"() noexcept

    ctypedef struct Member "struct whorl_member":
        pass

    # Macros, which take the address of what they are given.
    void begin_members "whorl_begin_members"(Member ring) noexcept
    void enlist "whorl_enlist"(Member ring, Member member, object owner) noexcept
    void delist "whorl_delist"(Member member) noexcept
    list listed "whorl_listed"(Member ring)


cdef int PENDING
cdef Member _members
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
    @cython.locals(finished=bint)
    cdef object _advance(self, object error)
    cdef object _wait_for_own(self, Future future)
    cdef object _wait_for(self, object awaited)
    cdef object _go_on(self)
    cdef object _run_eagerly(self)
    cdef object _end(self)


@cython.locals(machine=Loop, task=Task)
cpdef Task new_task(object loop, object coro, object name, object context)
