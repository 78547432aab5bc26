cimport cython
from libc.stdint cimport int64_t

from whorl.core.callback cimport Callback, new_callback, new_guarded_callback
from whorl.core.kernel cimport clock_is_patched
from whorl.core.loop_life cimport LoopLife
from whorl.core.timer cimport TimedCallback, new_timer, new_timer_after
from whorl.core.timer_heap cimport TimerHeap

cdef int DEFAULT
cdef int ONCE
cdef int PENDING_ROUNDS
cdef int QUIET_POLLS
cdef int TURNS_WITHOUT_POLL
cdef int64_t LONGEST_WITHOUT_POLL_NS


cdef class Loop(LoopLife):
    cdef int64_t _polled_at
    cdef int _skipped
    cdef bint _is_driven
    cdef bint _is_turning

    cdef object _set_up_loop(self, object poller, object kernel, object host)
    @cython.locals(can_sleep=bint, may_sleep=bint, _=int)
    cdef object _machine_turn(self, int mode)
    cdef int64_t _machine_timeout(self) except -2
    cpdef object _run_turns(self)
    cdef object _turn(self)
    @cython.locals(before=int64_t, slept=int64_t, found=Py_ssize_t, _=Py_ssize_t)
    cdef object _poll(self, int64_t timeout_ns, list into)
    @cython.locals(since=int64_t, timers=TimerHeap)
    cdef bint _skip_poll(self) except -1
    cdef int64_t _turn_timeout(self) except -2
    cdef bint _alive(self) except -1
