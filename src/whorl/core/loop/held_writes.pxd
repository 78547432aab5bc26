cimport cython
from libc.stdint cimport int64_t

from whorl.core cimport limits
from whorl.core.callback cimport thread_ident
from whorl.core.handle cimport Handle
from whorl.core.kernel.kernel cimport Kernel
from whorl.core.threads cimport shared_thread


cdef class HeldWrites:
    cdef public bint collects
    cdef public shared_thread thread
    cdef int64_t run
    cdef list streams
    cdef Kernel _kernel
    cdef unsigned long _thread
    cdef Py_ssize_t _behind
    cdef int64_t _since

    cdef bint may_wait(self) except -1
    cdef object add(self, Handle stream)
    cdef object act(self, Handle stream)
    cdef object callback_begins(self, Py_ssize_t behind)
    @cython.locals(stream=Handle)
    cdef object callback_ended(self)
    cdef object batch_ended(self)
    cdef bint _is_recent(self) except -1
    @cython.locals(stream=Handle)
    cpdef object push_all(self)
