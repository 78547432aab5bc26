cimport cython

from whorl.aio.interop.class_snapshot cimport ClassSnapshot
from whorl.core.loop.loop cimport Loop

cdef object _Executor
cdef object _thread
cdef object _global_lock
cdef bint _is_known
cdef ClassSnapshot _methods


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


cpdef bint is_stock_executor(object executor) except -1
cpdef object submit_job(object loop, object executor, object function, tuple args)
