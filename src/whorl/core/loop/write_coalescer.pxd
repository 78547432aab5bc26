cimport cython
from libc.stdint cimport int64_t

from whorl.core.callback cimport thread_ident
from whorl.core.handle cimport Handle
from whorl.core.kernel.kernel cimport Kernel
from whorl.core.lists cimport last_taken

cdef Py_ssize_t SMALL_WRITE
cdef int64_t LONGEST_HELD_TICKS


cdef class WriteCoalescer:
    cdef public bint is_on
    cdef bint _resumes
    cdef Kernel _kernel
    cdef Py_ssize_t _behind
    cdef list _held
    cdef int64_t _since
    cdef unsigned long _thread

    cdef bint hold(self, Handle handle, Py_ssize_t size) except -1
    cdef bint is_late(self) except -1
    cdef object batch_began(self)
    cdef object callback_ended(self)
    cdef object batch_ended(self)
    cpdef object fork_begins(self)
    cpdef object fork_ended(self)
    @cython.locals(held=list, handle=Handle)
    cpdef object send_all(self)
