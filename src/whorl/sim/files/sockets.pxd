from libc.stdint cimport int64_t

cimport cython

from whorl.sim.files.channel cimport Channel
from whorl.sim.files.file cimport File

cdef int AF_INET6, EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP, BOTH, READING, WRITING


cdef class SocketFile(File):
    cdef public int error
    cdef readonly int family
    cdef public object name
    cdef readonly dict options
    cdef readonly object protocol
    cdef public int shut
    cdef readonly object type

    cpdef int take_error(self) except? -1
    cpdef object shown(self, str ip, int port)


cdef class StreamSocket(SocketFile):
    cdef public int64_t backlog
    cdef public Channel incoming
    cdef public bint is_connected
    cdef public bint is_connecting
    cdef public Channel outgoing
    cdef public object peer_name
    cdef readonly object waiting
    cdef public bint was_reset

    @cython.locals(incoming=Channel, outgoing=Channel, ready=int, shut=int)
    cpdef int readiness(self) except? -1
    @cython.locals(incoming=Channel)
    cpdef object read(self, int64_t limit)
    @cython.locals(outgoing=Channel, room=int64_t, size=int64_t)
    cpdef int64_t write(self, bytes data) except? -65536
    cpdef object await_room(self)
    cpdef object reset(self)
    cpdef object fail(self, int code)
    cpdef int64_t patience(self) except? -1
    cpdef object released(self)
