cimport cython

from whorl.core.loop.loop cimport Loop
from whorl.core.threads cimport HAS_GIL, Mutex, lock, unlock

cdef object _thread
cdef object _global_lock
cdef set _unfinished


@cython.final
cdef class ExecutorJob:
    cdef readonly Loop _loop
    cdef readonly object _future
    cdef object _function
    cdef object _args
    cdef object _result
    cdef object _error
    cdef bint _is_cancelled
    cdef Mutex _call[1]  # held by those who look at the function or drop it

    cdef object _post(self)


cdef inline object function_of(ExecutorJob job):
    cdef object function
    lock(job._call)
    function = job._function
    unlock(job._call)
    return function


cdef inline int drop_call(ExecutorJob job) except -1:
    cdef object function  # which ends after the lock
    if not HAS_GIL:
        lock(job._call)
        function = job._function
        job._function = None
        unlock(job._call)
    else:
        job._function = None
    job._args = None
    return 0


cpdef object submit_job(object loop, object executor, object function, tuple args)
