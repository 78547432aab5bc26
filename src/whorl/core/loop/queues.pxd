cimport cython
from libc.stdint cimport int64_t

from whorl.core.callback cimport Runnable, current_thread
from whorl.core.handle cimport Completion, LateCompletion
from whorl.core.loop.state cimport LoopState

cdef extern from "Python.h":
    unsigned long thread_number "PyThread_get_thread_ident"() noexcept


cdef class LoopQueues(LoopState):
    cdef readonly list _ready_queue
    cdef list _spare
    cdef list _pending
    cdef list _spare_pending
    cdef list _polled
    cdef list _inbox
    cdef list _emptied
    cdef bint _posted
    cdef readonly dict _async_handles
    cdef public int64_t _asyncs_made
    cdef Runnable _sent_async
    cdef public bint _guards_posts
    cdef unsigned long _last_run_thread
    cdef bint _may_sleep
    cdef bint _woken

    cdef object _set_up(self, object kernel, object host)
    cdef object _enqueue(self, Runnable entry)
    cdef object _queue_pending(self, Runnable entry)
    cdef object _unqueue_pending(self, Runnable entry)
    cdef object _collect_pending(self, list into)
    cdef object _post(self, Runnable entry)
    cpdef object _post_from_any_thread(self, Runnable entry)
    cdef object _async_sent(self, Runnable handle)
    cdef object _end_sleep(self)
    cdef object _wake(self)
    @cython.locals(late=list, index=Py_ssize_t, sent=Runnable)
    cdef object _drain_inbox(self, list into)


cdef inline object swap_inbox(LoopQueues loop, list into):
    # One step for other threads, which wait for the GIL, and for signal handlers: nothing here runs Python.
    cdef list arrived = loop._inbox
    loop._inbox = loop._emptied
    loop._emptied = arrived
    into.extend(arrived)
    arrived.clear()
