cimport cython
from libc.stdint cimport int64_t

from whorl.core.callback cimport current_thread
from whorl.core.figures cimport note_away
from whorl.core.kernel.kernel cimport clock_is_patched
from whorl.core.loop.execution cimport LoopExecution, begin_at_home, count_runs, taken_async
from whorl.core.loop.state cimport end_sleep
from whorl.core.pollers.contract cimport IOHandle, Poller
from whorl.core.loop.wakeup cimport SignalPipe, Wakeup


cdef class LoopLifecycle(LoopExecution):
    cdef public Poller _poller
    cdef Wakeup _wakeup
    cdef SignalPipe _signals
    cdef int _signal_handles
    cdef bint _arms_signals
    cdef bint _is_counted
    cdef object _process_id
    cdef IOHandle _spare_watch

    cdef object _set_up_lifecycle(self, object poller, object kernel, object host)
    cdef object _wake(self)
    cdef object _check_may_run(self)
    cpdef object _begin_run(self)
    @cython.locals(now=int64_t)
    cpdef object _end_run(self)
