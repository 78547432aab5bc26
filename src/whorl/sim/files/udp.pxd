from libc.stdint cimport int64_t

cimport cython

from whorl.sim.files.sockets cimport SocketFile
from whorl.sim.wire.clock cimport HostClock
from whorl.sim.wire.line cimport Line
from whorl.sim.wire.ports cimport is_ipv6, nearest, plain

cdef int EPOLLERR
cdef int EPOLLIN
cdef int EPOLLOUT


cdef class DatagramFile(SocketFile):
    cdef readonly int64_t _waiting_size
    cdef public object peer_name
    cdef readonly object waiting

    cpdef int readiness(self) except? -1
    cpdef object receive(self)
    cpdef object read(self, int64_t limit)
    cpdef int64_t write(self, bytes data) except? -65536
    cpdef int64_t send_to(self, bytes data, object address) except? -65536
    cpdef object arrive(self, bytes data, object address)


cdef class UdpSocket(DatagramFile):
    cdef int64_t _changes
    cdef int _port
    cdef dict _routes
    cdef readonly object groups

    cdef int _ensure_port(self) except? -65536
    @cython.locals(code=int, route=tuple)
    cpdef int64_t send_to(self, bytes data, object address) except? -65536
    cdef tuple _route(self, object target, str ip)
    @cython.locals(line=Line)
    cdef object _send_on_line(self, tuple route, str ip, int port, bytes data)
    @cython.locals(now=int64_t, took=int64_t)
    cpdef object _depart(self, Line line, object target, str ip, int port, bytes data, str source)
    @cython.locals(back=Line, found=list, bound=list, took=int64_t)
    cpdef object _reach(self, Line line, HostClock target, str ip, int port, bytes data, str source, object packet)
    cpdef bint takes_from(self, str ip, int port) except -1
    cpdef object released(self)


cdef class UnixDatagramSocket(DatagramFile):
    cdef bint _is_bound

    cpdef int64_t send_to(self, bytes data, object address) except? -65536
    cpdef object released(self)
