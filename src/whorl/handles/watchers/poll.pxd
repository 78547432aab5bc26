from whorl.core cimport states
from whorl.core.callback cimport call_in_context, current_context
from whorl.core.pollers.contract cimport IOHandle, Poller

cdef tuple EVENT_SETS


cdef class Poll(IOHandle):
    cdef Poller _poller
    cdef object _callback
    cdef readonly object _context

    cpdef object _on_events(self, int seen)
    cpdef object _release(self)
