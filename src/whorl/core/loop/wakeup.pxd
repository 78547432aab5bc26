from cpython.exc cimport PyErr_CheckSignals

from whorl.core.kernel.kernel cimport Kernel
from whorl.core.pollers.contract cimport IOHandle
from whorl.core.threads cimport Mutex, lock, shared_int, unlock


cdef class Wakeup(IOHandle):
    cdef Kernel _kernel
    cdef object _pair
    cdef shared_int _write_fd  # -1 before it is closed, which no named writer lets happen
    cdef set _wakers
    cdef list _given_up
    cdef Mutex _naming[1]  # held by those who change `_wakers` or ask for it

    cpdef object wake(self)
    cdef object _open(self)
    cdef object _close_given_up(self)
    cpdef object _on_events(self, int seen)
    cpdef object _release(self)


cdef class SignalPipe(IOHandle):
    cdef Kernel _kernel
    cdef readonly object _pair
    cdef public object _former
    cdef set _arrived
    cdef readonly object on_signal

    cpdef object _on_events(self, int seen)
    cpdef object _release(self)


cdef inline object announce(Wakeup wakeup, object waker):
    # The writer is named before it looks at the descriptor. The lock orders that with a look at the names.
    lock(wakeup._naming)
    try:
        wakeup._wakers.add(waker)
    finally:
        unlock(wakeup._naming)


cdef inline object take_leave(Wakeup wakeup, object waker):
    # What was written before lies before the look of the one that finds no name and closes the descriptor.
    lock(wakeup._naming)
    try:
        wakeup._wakers.discard(waker)
    finally:
        unlock(wakeup._naming)


cdef inline bint is_anybody_writing(Wakeup wakeup) except -1:
    lock(wakeup._naming)
    try:
        return len(wakeup._wakers) > 0
    finally:
        unlock(wakeup._naming)


cdef inline int run_signal_handlers() except -1:
    return PyErr_CheckSignals()
