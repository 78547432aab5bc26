cimport cython

from whorl.core cimport limits
from whorl.core.figures cimport Figures
from whorl.core.threads cimport HAS_GIL, barrier, shared_flag, shared_thread

cdef extern from "whorl/core/references.h":
    bint has_single_reference "whorl_has_single_reference"(object thing)
    bint is_held_alone "whorl_is_held_alone"(object thing, Py_ssize_t count)

cdef extern from "whorl/core/context.h":
    object run_in_context "whorl_run_in_context"(object context, object callback, tuple args)
    object call_with_one "whorl_call_with"(object context, object callback, object argument)
    object call_with_two "whorl_call_with"(object context, object callback, object one, object two)
    object call_with_three "whorl_call_with"(object context, object callback, object one, object two, object three)
    bint context_is_empty "whorl_context_is_empty"() noexcept

cdef extern from "whorl/core/callback.h":
    void fetch "whorl_fetch"(list entries, Py_ssize_t place) noexcept

cdef extern from "Python.h":
    object new_context "PyContext_New"()
    object PyContext_CopyCurrent()
    unsigned long PyThread_get_thread_ident()


cdef inline int reraise_pending() except -1:
    return -1


cdef inline object snapshot_context():
    # None is an empty context: the callback gets a context of its own when it runs. If each waiting callback
    # had one, the collector would look at all of them. CPython keeps no more than 255 freed contexts for reuse.
    return None if context_is_empty() else PyContext_CopyCurrent()


cdef inline object copy_context():
    return PyContext_CopyCurrent()


cdef inline object get_ident():
    return PyThread_get_thread_ident()


cdef inline unsigned long thread_ident() noexcept:
    return PyThread_get_thread_ident()


cdef extern from *:
    # One byte instead of the four of `bint`, for attributes of classes with many instances.
    ctypedef bint flag "_Bool"


cdef class Runnable:
    cdef object _execute(self)


cdef class AbstractLoop:
    cdef public bint _debug
    cdef readonly Figures _figures

    cdef object _set_up_abstract(self)
    cdef object _timer_cancelled(self, Runnable timer)
    cdef object _count_active(self, Py_ssize_t change)
    cdef object _count_requests(self, Py_ssize_t change)
    cdef object _handle_opened(self, Runnable handle)
    cdef object _handle_closing(self, Runnable handle)
    cdef object _handle_closed(self, Runnable handle)
    cdef object _queue_pending(self, Runnable entry)
    cdef object _unqueue_pending(self, Runnable entry)
    cpdef object _check_closed(self)
    cpdef object _shown_class(self, object cls)
    cpdef object _describe(self, Callback callback)
    cdef bint _is_foreign(self) noexcept


cdef inline bint is_foreign(AbstractLoop loop) noexcept:
    # With the GIL, which no thread loses between two steps of a queue, nobody asks.
    return not HAS_GIL and loop is not None and loop._is_foreign()


cdef class Callback(Runnable):
    cdef public AbstractLoop _loop
    cdef public object _callback
    cdef public tuple _args
    cdef object _snapshot
    cdef public shared_flag _cancelled  # other threads set it, and leave the rest to the loop's thread
    cdef public object _source_traceback
    cdef object _repr
    cdef object __weakref__

    cdef object _execute(self)
    cdef object _mark_cancelled(self)
    @cython.locals(loop=object)
    cpdef object _run(self)


cdef class GuardedCallback(Callback):
    cdef shared_thread _running_thread  # set before a look at `_cancelled`; `cancel` does the reverse
    cdef object _ended  # which only the holder of `_one_waiter` touches
    cdef shared_flag _is_awaited  # set before a look at `_running_thread`, which the end of the call clears first

    @cython.locals(outer="unsigned long")
    cdef object _execute(self)
    cdef object _await_end(self)
    cdef object _end_lock(self)
    cdef object _release_waiters(self)


cdef extern from "whorl/core/callback.h":
    void set_freelist_size "whorl_set_freelist_size"(Py_ssize_t room) noexcept
    bint freelist_put "whorl_freelist_put"(object callback, bint guarded) noexcept
    Callback freelist_pop "whorl_freelist_pop"(bint guarded)
    GuardedCallback freelist_pop_guarded "whorl_freelist_pop"(bint guarded)
    void fill_in "WHORL_FILL_IN"(Callback entry, AbstractLoop loop, object callback, tuple args, object context) noexcept
    void forget "WHORL_FORGET"(Callback callback) noexcept
    bint has_run "WHORL_HAS_RUN"(Callback callback) noexcept


cdef bint run_catching(Callback entry, bint guarded) noexcept
cdef object recycle_guarded(GuardedCallback entry)
cpdef object drop_callback(Callback entry)
cpdef object thread_begins(bint runs_loop)


@cython.locals(entry=Callback, snapshot=object)
cpdef Callback new_callback(AbstractLoop loop, object callback, tuple args, object context)


@cython.locals(entry=GuardedCallback, snapshot=object)
cpdef GuardedCallback new_guarded_callback(AbstractLoop loop, object callback, tuple args, object context)


cpdef object call_in_context(object context, object callback, tuple args)
cpdef object current_context()
cpdef object current_thread()
