from whorl.core.kernel.kernel cimport Kernel
from whorl.core.pollers.contract cimport IOHandle
from whorl.core.threads cimport barrier


cdef class Wakeup(IOHandle):
    cdef Kernel _kernel
    cdef object _pair
    cdef int _write_fd
    cdef set _wakers
    cdef list _given_up

    cpdef object wake(self)
    cdef object _open(self)
    cdef object _close_given_up(self)
    cpdef object _on_events(self, int seen)
    cpdef object _release(self)


cdef class SignalPipe(IOHandle):
    cdef Kernel _kernel
    cdef readonly object _pair
    cdef public object _former

    cpdef object _on_events(self, int seen)
    cpdef object _release(self)
