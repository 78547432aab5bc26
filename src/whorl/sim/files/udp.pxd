from libc.stdint cimport int64_t

cimport cython

from whorl.sim.files.sockets cimport SocketFile
from whorl.sim.wire.clock cimport HostClock
from whorl.sim.wire.line cimport Line
from whorl.sim.wire.ports cimport is_ipv6, nearest, plain
from whorl.sim.wire.timeline cimport Event

cdef int AF_INET6, EPOLLERR, EPOLLIN, EPOLLOUT, EPOLLHUP, EPOLLRDHUP, BOTH, READING, WRITING
cdef object AGAIN
cdef int64_t BUFFER
cdef Py_ssize_t _ALWAYS_FITS, _LARGEST, _LARGEST_PACKET


cdef class DatagramFile(SocketFile):
    cdef public int64_t _waiting_size
    cdef public object peer_name
    cdef readonly object waiting

    cpdef int readiness(self) except? -1
    @cython.locals(datagram=tuple)
    cpdef object receive(self, bint peeks=*)
    cdef bint knows(self, str ip) except -1
    cpdef object read(self, int64_t limit)
    cpdef int64_t write(self, bytes data) except? -65536
    cpdef int64_t send_to(self, bytes data, object address) except? -65536
    cpdef object arrive(self, bytes data, object address)


cdef class Route:
    cdef bint is_group
    cdef Line line
    cdef str source
    cdef HostClock target
    cdef str to


cdef class Arrival(Event):
    cdef bytes data
    cdef object packet
    cdef int port
    cdef Route route
    cdef UdpSocket sender

    @cython.locals(route=Route)
    cdef object happen(self)


cdef class UdpSocket(DatagramFile):
    cdef int64_t _changes
    cdef int _port
    cdef dict _routes
    cdef readonly object groups

    cdef int _ensure_port(self) except? -65536
    cdef bint knows(self, str ip) except -1
    @cython.locals(code=int, port=int, route=Route)
    cpdef int64_t send_to(self, bytes data, object address) except? -65536
    @cython.locals(line=Line)
    cdef object _send_on_line(self, Route route, int port, bytes data)
    @cython.locals(line=Line, machine=HostClock, now=int64_t, size=Py_ssize_t, took=int64_t)
    cpdef object _depart(self, Route route, int port, bytes data)
    @cython.locals(
        back=Line, each=tuple, found=list, sock=UdpSocket, source=str, taking=list, target=HostClock, took=int64_t
    )
    cdef object _reach(self, Route route, int port, bytes data)
    cdef object _reach_many(self, Route route, int port, bytes data)
    cpdef bint takes_from(self, str ip, int port) except -1
    cpdef object released(self)

