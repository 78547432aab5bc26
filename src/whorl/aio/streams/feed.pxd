cimport cython

from whorl.aio.streams.buffer cimport StreamBuffer
from whorl.aio.interop.reusable_future cimport ReusableFuture
from whorl.core.callback cimport has_single_reference
from whorl.core.loop.loop cimport Loop

cdef extern from "Python.h":
    dict PyObject_GenericGetDict(object thing, void *context)


cdef inline dict attributes_of(object thing):
    return PyObject_GenericGetDict(thing, NULL)


cdef class StreamWait(ReusableFuture):
    cdef object _wake(self)


cdef inline StreamWait new_wait(Loop loop):
    cdef StreamWait wait = StreamWait.__new__(StreamWait)
    wait._set_up(loop)
    return wait


cdef class StreamFeed(StreamBuffer):
    cdef Loop _loop
    cdef StreamWait _wait
    cdef public object limit
    cdef Py_ssize_t _low
    cdef Py_ssize_t _high
    cdef public bint eof
    cdef public object exception
    cdef public object waiter
    cdef public bint paused
    cdef public object transport
    cdef public object source
    cdef public bint is_direct

    cdef object _set_up(self, Loop loop)
    cpdef object take_over(self, dict state)
    cdef bint is_open_to(self, object protocol) except -1
    cdef object _arrived(self, bytes data)
    cpdef object put(self, object data)
    cpdef object end(self)
    @cython.locals(own=StreamWait)
    cdef object _wake_reader(self)
    cpdef object read(self, Py_ssize_t n)
    cpdef bytes take_and_resume(self, Py_ssize_t n)
    cpdef object set_limit(self, object limit)
    cpdef bytes line(self)
    cpdef object resume(self)
    @cython.locals(wait=StreamWait)
    cpdef object wait(self, str method)
    cpdef object leave(self, object wait)


cdef inline StreamFeed new_feed(Loop loop):
    cdef StreamFeed feed = StreamFeed.__new__(StreamFeed)
    feed._set_up(loop)
    return feed
