cimport cython

from whorl.core.callback cimport Runnable
from whorl.core.handle cimport Handle
from whorl.core.loop.queues cimport LoopQueues


cdef class LoopHandles(LoopQueues):
    cdef readonly dict _shared
    cdef readonly list _idle_handles
    cdef readonly list _prepare_handles
    cdef readonly list _check_handles
    cdef list _closing_handles
    cdef dict _handles
    cdef Py_ssize_t _active_handles
    cdef Py_ssize_t _active_requests

    cdef object _set_up(self, object kernel, object host)
    @cython.locals(opened=Handle)
    cdef object _handle_opened(self, Runnable handle)
    cdef object _handle_closing(self, Runnable handle)
    cdef object _internal_handle_opened(self, Handle handle)
    @cython.locals(closed=Handle)
    cdef object _handle_closed(self, Runnable handle)
    cpdef object _mark_internal(self, Handle handle)
    cdef object _count_active(self, Py_ssize_t change)
    cdef object _count_requests(self, Py_ssize_t change)
