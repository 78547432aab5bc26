cimport cython

from whorl.aio.futures cimport states
from whorl.core.callback cimport Runnable
from whorl.core.loop.loop cimport Loop
from whorl.core.threads cimport shared_int


cdef extern from "whorl/aio/futures/future.h":
    int stop_with "whorl_stop_with"(object value) noexcept


cdef class Future(Runnable):
    cdef dict __dict__
    cdef object __weakref__
    cdef readonly object _loop
    cdef shared_int _status  # other threads ask whether it is cancelled, and then read nothing else
    cdef readonly object _result
    cdef readonly object _exception
    cdef object _traceback
    cdef object _message
    cdef object _cancelled_error
    cdef bint _is_unretrieved
    cdef public bint _asyncio_future_blocking
    cdef object _first
    cdef object _first_context
    cdef list _more
    cdef public object _source_traceback

    cdef object _take_result(self)
    cdef object _restore_traceback(self, object error)
    cdef object _outcome(self, str complaint)
    cpdef object _make_cancelled_error(self)
    cdef object _finish(self, object result)
    cdef object _fail(self, object exception)
    cdef bint _cancel(self, object message) except -1
    cdef object _refuse(self)
    cdef object _append(self, object entry, object context)
    cdef list _entries(self)
    cdef object _call_all(self)
    @cython.locals(machine=Loop)
    cdef object _call(self, object entry, object context)
    cdef object _end(self)
    cdef object _complain(self, str message)


@cython.final
cdef class FutureIterator:
    cdef Future _future


@cython.locals(future=Future)
cpdef Future new_future(object loop)


cpdef object origin()
