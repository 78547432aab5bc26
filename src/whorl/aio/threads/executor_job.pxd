cimport cython

from whorl.core.loop.loop cimport Loop

cdef object _thread
cdef object _global_lock
cdef set _unfinished


@cython.final
cdef class ExecutorJob:
    cdef readonly Loop _loop
    cdef readonly object _future
    cdef readonly object _function
    cdef object _args
    cdef object _result
    cdef object _error
    cdef bint _is_cancelled

    cdef object _post(self)


cpdef object submit_job(object loop, object executor, object function, tuple args)
