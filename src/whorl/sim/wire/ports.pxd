from libc.stdint cimport int64_t

cimport cython

cdef list _NOBODY

cpdef bint is_ipv6(str ip) except -1
cpdef str plain(str ip)


cdef class PortTable:
    cdef int _next
    cdef dict _sockets
    cdef dict _waiting

    @cython.locals(candidate=int, other_ip=str)
    cpdef int bind(self, object sock, str ip, int port, int64_t now) except? -65536
    cdef bint _clashes(self, object sock, str ip, object other, str other_ip) except -1
    cpdef object unbind(self, object sock, int port, int64_t waits_until=*)
    cpdef list bound(self, int port)
    cpdef list find(self, str ip, int port, object accepts)


@cython.locals(exact=list, wide=list, bound_ip=str)
cpdef list nearest(str ip, list bound)
