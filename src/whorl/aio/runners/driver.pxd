from libc.stdint cimport int64_t

from whorl.aio.loop.lifecycle cimport Running, set_running, unset_running
from whorl.core.loop.loop cimport Loop


cdef object _get_running_loop, _set_running_loop


cdef class Driver:
    cdef dict __dict__
    cdef object __weakref__
    cdef bint _is_open
    cdef Running _loop

    cdef int64_t _rest_ns(self) except? -2
    cpdef bint step(self) except -1
    cdef object _enter(self)
    cdef object _exit(self)
    cdef object _leave(self, object host, object task)
    cdef object _check_open(self)
