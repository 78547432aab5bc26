cimport cython

from whorl.core cimport limits, states
from whorl.core.kernel.kernel cimport Kernel
from whorl.core.loop.loop cimport Loop
from whorl.core.pollers.contract cimport IOHandle, Poller
from whorl.core.timers.timed_callback cimport TimedCallback


cdef class Listener(IOHandle):
    cdef Kernel _kernel
    cdef Poller _poller
    cdef object _sock
    cdef object _accepted
    cdef object _refused
    cdef TimedCallback _retry_timer

    cpdef object _on_events(self, int seen)
    cdef bint _should_retry(self, int code) except -1
    @cython.locals(loop=Loop, timer=TimedCallback)
    cdef object _pause_for_a_while(self, int code)
    cpdef object _release(self)
