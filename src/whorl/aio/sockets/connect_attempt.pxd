cimport cython

from whorl.aio.streams.feed cimport StreamWait, new_wait
from whorl.core cimport states
from whorl.core.callback cimport AbstractLoop
from whorl.core.kernel.kernel cimport Kernel
from whorl.core.loop.loop cimport Loop
from whorl.core.pollers.contract cimport IOHandle

cdef int AF_INET6
cdef object DONE
cdef tuple NO_KIND


cdef class ConnectAttempt(IOHandle):
    cdef Loop _machine
    cdef StreamWait _wait
    cdef tuple _kind
    cdef tuple _peer
    cdef int _socket_fd
    cdef int _code
    cdef int _early
    cdef bint _owns_fd

    cdef object _set_up(self, AbstractLoop loop)
    cdef object _init_begun(self, Loop machine, int fd, tuple kind)
    cdef object _watch(self)
    @cython.locals(wait=StreamWait)
    cpdef object _on_events(self, int seen)
    cdef object _leave(self)
    @cython.locals(kernel=Kernel, duplicate=int)
    cpdef object _release_fd(self)
    cpdef object check(self, object address)
    cpdef object give_up(self)
    @cython.locals(wait=StreamWait)
    cdef StreamWait reuse_wait(self)
    cpdef object to_socket(self)


cdef inline bint owns_fd(ConnectAttempt attempt) noexcept:
    return attempt._owns_fd
