from libc.stdint cimport int64_t

from whorl.sim.files.sockets cimport StreamSocket


cdef class TcpSocket(StreamSocket):
    cdef object _attempt
    cdef int64_t _began
    cdef bint _is_bound
    cdef int _port
    cdef object _target

    cpdef object released(self)
