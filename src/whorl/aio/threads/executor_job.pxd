cimport cython

from whorl.core.loop.loop cimport Loop

cdef object _thread
cdef object _global_lock


@cython.final
cdef class ExecutorJob:
    cdef Loop _loop
    cdef object _future
    cdef object _function
    cdef object _args
    cdef object _result
    cdef object _error
    cdef bint _is_cancelled

    cdef object _post(self)


cpdef object submit_job(object loop, object executor, object function, tuple args)
