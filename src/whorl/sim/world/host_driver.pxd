from whorl.aio.runners.driver cimport Driver

cdef extern from "whorl/sim/world/hooks.h":
    object first_hook "whorl_first_hook"()
    object last_hook "whorl_last_hook"()
    void set_hooks "whorl_set_hooks"(object first, object last) noexcept


cdef object _set_running_loop


cdef class HostDriver(Driver):
    cdef object _first
    cdef object _former_first
    cdef object _former_last
    cdef object _last
    cdef bint _has_hooks

    cdef object _enter(self)
    cdef object _exit(self)
