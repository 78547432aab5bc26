from libc.stdint cimport int64_t

cimport cython

from whorl.aio.runners.driver cimport Driver
from whorl.core.timers.timed_callback cimport TimedCallback

cdef extern from "whorl/aio/runners/hooks.h":
    object first_hook "whorl_first_hook"()
    object last_hook "whorl_last_hook"()
    void set_hooks "whorl_set_hooks"(object first, object last) noexcept


cdef object _set_running_loop


@cython.locals(due=int64_t, timer=TimedCallback)
cpdef set deadlines(object loop, int64_t after, int64_t until)


cdef class HostDriver(Driver):
    cdef object _first
    cdef object _former_first
    cdef object _former_last
    cdef object _last
    cdef bint _has_hooks

    cdef int64_t rest_ns(self) except? -2
    cdef object _enter(self)
    cdef object _exit(self)
