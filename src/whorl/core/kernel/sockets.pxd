cimport cython
from libc.errno cimport ENOSYS, errno as c_errno
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset
from posix.fcntl cimport F_SETFD, F_SETFL, FD_CLOEXEC, O_NONBLOCK, fcntl as c_fcntl
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from whorl.core.kernel.socket_addresses cimport (
    AF_INET,
    AF_INET6,
    AF_UNIX,
    read_address,
    sockaddr,
    sockaddr_in,
    sockaddr_storage,
    write_address,
)
from whorl.core.kernel.files cimport FileCalls, c_close

cdef extern from "<sys/socket.h>":
    enum: SOCK_CLOEXEC
    enum: SOCK_NONBLOCK
    enum: SOCK_STREAM
    enum: SOL_SOCKET
    enum: SO_ERROR
    int c_socket "socket"(int family, int kind, int protocol)
    int c_accept "accept"(int fd, sockaddr *address, unsigned int *length)
    int c_accept4 "accept4"(int fd, sockaddr *address, unsigned int *length, int flags)
    int c_connect "connect"(int fd, const sockaddr *address, unsigned int length)
    int c_getpeername "getpeername"(int fd, sockaddr *address, unsigned int *length)
    int c_getsockname "getsockname"(int fd, sockaddr *address, unsigned int *length)
    int c_getsockopt "getsockopt"(int fd, int level, int name, void *value, unsigned int *size)
    int c_setsockopt "setsockopt"(int fd, int level, int name, const void *value, unsigned int size)

cdef extern from "<poll.h>":
    enum: POLLIN
    struct pollfd:
        int fd
        short events
        short revents
    int c_poll "poll"(pollfd *entries, unsigned long count, int timeout)

cdef extern from "<netinet/tcp.h>":
    enum: IPPROTO_TCP
    enum: TCP_NODELAY


cdef enum:
    UNKNOWN_ADDRESS = 1  # as in core/kernel/errors


cdef inline int accepted_descriptor(int fd, sockaddr *address, unsigned int *length) noexcept:
    cdef int connection = c_accept4(fd, address, length, SOCK_NONBLOCK | SOCK_CLOEXEC)
    if connection >= 0 or c_errno != ENOSYS:
        return connection
    connection = c_accept(fd, address, length)  # An emulator, or a filter of system calls, may know only this.
    if connection >= 0:
        c_fcntl(connection, F_SETFD, FD_CLOEXEC)
        c_fcntl(connection, F_SETFL, O_NONBLOCK)
    return connection


cdef inline object accept_stream(SocketCalls calls, int fd):
    # The peer's name may never be asked for. Connections of one listening socket mostly have one name of their own.
    cdef sockaddr_storage peer, own
    cdef unsigned int peer_length = sizeof(sockaddr_storage), own_length = sizeof(sockaddr_storage)
    cdef int connection = accepted_descriptor(fd, <sockaddr *>&peer, &peer_length), on = 1
    if connection < 0:
        return -c_errno
    try:
        if peer.ss_family == AF_UNIX:
            return connection, raw_address(&peer, peer_length), None
        if c_getsockname(connection, <sockaddr *>&own, &own_length) != 0:
            return connection, peer_address(&peer, peer_length), None
        c_setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on))
        if calls._last_sockaddr is None or own_length != PyBytes_GET_SIZE(calls._last_sockaddr) \
                or memcmp(&own, PyBytes_AS_STRING(calls._last_sockaddr), own_length):
            calls._last_sockname = read_address(&own, own_length)
            calls._last_sockaddr = raw_address(&own, own_length)
        return connection, peer_address(&peer, peer_length), calls._last_sockname
    except BaseException:
        c_close(connection)
        raise


cdef inline int open_stream(int family, int protocol) except? -65536:
    cdef int fd = c_socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol)
    return fd if fd >= 0 else -c_errno


cdef inline int connect_stream(int fd, int family, object address) except? -65536:
    cdef sockaddr_storage target
    cdef unsigned int length = write_address(family, address, &target)
    if length == 0:
        return UNKNOWN_ADDRESS
    return 0 if c_connect(fd, <sockaddr *>&target, length) == 0 else -c_errno


cdef inline object names_of_stream(int fd, object known_peer):
    cdef sockaddr_storage peer, own
    cdef unsigned int peer_length = sizeof(sockaddr_storage), own_length = sizeof(sockaddr_storage)
    cdef object address = known_peer, name = None
    cdef int on = 1
    if c_getsockname(fd, <sockaddr *>&own, &own_length) == 0:
        name = read_address(&own, own_length)
        if own.ss_family != AF_UNIX:
            c_setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on))
    if address is None and c_getpeername(fd, <sockaddr *>&peer, &peer_length) == 0:
        address = peer_address(&peer, peer_length)
    return fd, address, name


cdef inline bint connection_waits(int fd) noexcept:
    cdef pollfd entry
    entry.fd, entry.events, entry.revents = fd, POLLIN, 0
    return c_poll(&entry, 1, 0) != 0


cdef inline int pending_error(int fd) noexcept:
    cdef int error = 0
    cdef unsigned int length = sizeof(error)
    return error if c_getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 else c_errno


cdef inline object peer_address(sockaddr_storage *address, unsigned int length):
    # IPv4's is a number, with a bit more, so that it is never 0.
    cdef sockaddr_in *ipv4 = <sockaddr_in *>address
    if address.ss_family == AF_INET:
        return <uint64_t>1 << 48 | <uint64_t>ipv4.sin_addr.s_addr << 16 | ipv4.sin_port
    return raw_address(address, length)


cdef inline bytes raw_address(sockaddr_storage *address, unsigned int length):
    return PyBytes_FromStringAndSize(<char *>address, min(length, sizeof(sockaddr_storage)))


cdef inline object name_in(object given):
    cdef sockaddr_storage address
    cdef sockaddr_in *ipv4 = <sockaddr_in *>&address
    cdef unsigned int length
    cdef uint64_t number
    cdef bytes raw
    memset(&address, 0, sizeof(address))
    if isinstance(given, int):
        number = given
        ipv4.sin_family = <uint16_t>AF_INET
        ipv4.sin_addr.s_addr = <uint32_t>(number >> 16)
        ipv4.sin_port = <uint16_t>number
        return read_address(&address, sizeof(sockaddr_in))
    raw = given
    length = <unsigned int>min(<size_t>len(raw), sizeof(sockaddr_storage))
    memcpy(&address, PyBytes_AS_STRING(raw), length)
    return read_address(&address, length)


cdef class SocketCalls(FileCalls):
    cdef bytes _last_sockaddr
    cdef object _last_sockname

    cpdef object accept_descriptor(self, int fd)
    @cython.locals(waits=bint)
    cpdef bint may_accept(self, int fd) except -1
    cpdef object name_of(self, object address)
    @cython.locals(fd=int)
    cpdef int open_descriptor(self, int family, int protocol) except? -65536
    @cython.locals(code=int)
    cpdef int connect_descriptor(self, int fd, int family, object address) except? -65536
    cpdef object names_of_descriptor(self, int fd, object peer)
    @cython.locals(code=int)
    cpdef int descriptor_error(self, int fd) except? -65536
