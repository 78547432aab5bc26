from whorl.core.callback cimport call_in_context, new_callback
from whorl.core.loop cimport Loop

cdef extern from "Python.h":
    bint is_builtin "PyCFunction_CheckExact"(object thing)

cdef tuple WOKEN


cdef class Wait:
    cdef public bint _asyncio_future_blocking
    cdef Loop _runner
    cdef object _callback
    cdef object _context
    cdef bint _done
    cdef bint _cancelled
    cdef object _message
    cdef object _error

    cdef object _reset(self)
    cdef tuple _report(self, object callback)
    cdef object _wake_soon(self)
    cdef object _wake_now(self)
