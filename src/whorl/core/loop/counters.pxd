from libc.stdint cimport int64_t

from whorl.core.loop.timers cimport LoopTimers


cdef class LoopCounters(LoopTimers):
    cdef int64_t _turns
    cdef int64_t _events
    cdef int64_t _callbacks
    cdef int64_t _events_waiting
    cdef int64_t _idle_ns
    cdef int64_t _sleep_began
    cdef int64_t _ran_ns
    cdef int64_t _run_began

    cdef object _set_up(self, object kernel, object host)
