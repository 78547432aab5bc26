from libc.stdint cimport int64_t

from whorl.core.loop.loop cimport Loop


cdef class Running(Loop):
    cdef public bint _asyncgens_shutdown_called
    cdef public object _children
    cdef public object _clock_resolution
    cdef public object _default_executor
    cdef public object _exception_handler
    cdef public bint _executor_shutdown_called
    cdef public int64_t _failed_handshakes
    cdef public object _known_asyncgens
    cdef public object _old_agen_hooks
    cdef public object _own_executor
    cdef public object _saved_origin_depth
    cdef public object _signal_handlers
    cdef public object _task_factory
    cdef public object _tls_scratch
    cdef public object _transports
    cdef public object slow_callback_duration

    cdef object _ensure_future(self, object future)
    cdef object _run_turns_of_others(self)
    cdef object _check_may_run(self)
    cpdef object _begin_run(self)
    cpdef object _end_run(self)


cpdef object set_running(Running loop)
cpdef object unset_running(Running loop)
cpdef object track_origins(Running loop, object enabled)
