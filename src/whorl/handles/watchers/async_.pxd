from libc.stdint cimport int64_t

cimport cython

from whorl.core cimport states
from whorl.core.callback cimport call_with_one, current_context
from whorl.core.handle cimport Handle
from whorl.core.loop.execution cimport put_async, taken_async
from whorl.core.loop.loop cimport Loop
from whorl.core.threads cimport barrier, shared_flag


@cython.locals(index=Py_ssize_t)
cdef object put_last(dict handles, list waiting, Py_ssize_t first)


cdef class Async(Handle):
    cdef object _callback
    cdef readonly object _context
    cdef shared_flag _sent  # cleared before the call, set after what the call is to see

    @cython.locals(loop=Loop)
    cpdef object send(self)
    @cython.locals(loop=Loop, handles=dict, waiting=list, index=Py_ssize_t, handle=Async, made=int64_t)
    cdef object _execute(self)
    @cython.locals(loop=Loop, handle=Async)
    cdef object _forget_sent(self)
    cdef object _call(self)
    cpdef object _release(self)
