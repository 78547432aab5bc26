from libc.errno cimport EINVAL, ENOSYS, EPERM, errno as c_errno
from libc.stdint cimport uint16_t, uint32_t
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from whorl.core.notify cimport NotifyCalls

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len

cdef extern from "<netinet/in.h>" nogil:
    int AF_INET
    int AF_INET6
    int AF_UNIX
    struct in_addr:
        uint32_t s_addr
    struct in6_addr:
        pass
    struct sockaddr:
        pass
    struct sockaddr_in:
        uint16_t sin_family
        uint16_t sin_port
        in_addr sin_addr
    struct sockaddr_in6:
        uint16_t sin6_family
        uint16_t sin6_port
        uint32_t sin6_flowinfo
        in6_addr sin6_addr
        uint32_t sin6_scope_id
    struct sockaddr_storage:
        uint16_t ss_family
    uint16_t htons(uint16_t value)
    uint16_t ntohs(uint16_t value)
    uint32_t htonl(uint32_t value)
    uint32_t ntohl(uint32_t value)

cdef extern from "<arpa/inet.h>" nogil:
    const char *inet_ntop(int family, const void *address, char *text, unsigned int size)
    int inet_pton(int family, const char *text, void *address)

cdef extern from "<sys/socket.h>" nogil:
    struct msghdr:
        void *msg_name
        unsigned int msg_namelen
        iovec *msg_iov
        size_t msg_iovlen
    int MSG_NOSIGNAL
    int MSG_DONTWAIT
    ssize_t c_sendto "sendto"(int fd, const void *data, size_t size, int flags, const sockaddr *address, unsigned int length)
    ssize_t c_recvfrom "recvfrom"(int fd, void *data, size_t size, int flags, sockaddr *address, unsigned int *length)

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <stddef.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/socket.h>
    #include <sys/syscall.h>
    #include <sys/un.h>
    #include <unistd.h>

    #define WHORL_DATAGRAMS 32
    #define WHORL_PATH_AT ((unsigned int)offsetof(struct sockaddr_un, sun_path))
    #define WHORL_PATH_SIZE ((Py_ssize_t)sizeof(((struct sockaddr_un *)0)->sun_path))

    /* struct mmsghdr, which the headers show only to those who ask for GNU's names early enough. */
    struct whorl_mmsghdr {
        struct msghdr msg_hdr;
        unsigned int msg_len;
    };

    static inline int whorl_recvmmsg(int fd, struct whorl_mmsghdr *messages, unsigned int count, int flags) {
        return (int)syscall(SYS_recvmmsg, fd, messages, count, flags, NULL);
    }

    static inline int whorl_sendmmsg(int fd, struct whorl_mmsghdr *messages, unsigned int count, int flags) {
        return (int)syscall(SYS_sendmmsg, fd, messages, count, flags);
    }

    /* The text of an IPv4 address; several times as fast as inet_ntop. Returns its length. */
    static inline int whorl_show_ipv4(uint32_t network_order, char *text) {
        const unsigned char *byte = (const unsigned char *)&network_order;
        char *end = text;
        int i;
        for (i = 0; i < 4; i++) {
            unsigned int value = byte[i];
            if (value >= 100)
                *end++ = (char)('0' + value / 100);
            if (value >= 10)
                *end++ = (char)('0' + value / 10 % 10);
            *end++ = (char)('0' + value % 10);
            *end++ = '.';
        }
        *--end = 0;
        return (int)(end - text);
    }

    static inline char *whorl_path_of(struct sockaddr_storage *address) {
        return ((struct sockaddr_un *)address)->sun_path;
    }
    """
    struct mmsghdr "whorl_mmsghdr":
        msghdr msg_hdr
        unsigned int msg_len
    int c_recvmmsg "whorl_recvmmsg"(int fd, mmsghdr *messages, unsigned int count, int flags) nogil
    int c_sendmmsg "whorl_sendmmsg"(int fd, mmsghdr *messages, unsigned int count, int flags) nogil
    int show_ipv4 "whorl_show_ipv4"(uint32_t network_order, char *text) nogil
    char *path_of "whorl_path_of"(sockaddr_storage *address) nogil
    unsigned int PATH_AT "WHORL_PATH_AT"
    Py_ssize_t PATH_SIZE "WHORL_PATH_SIZE"
    void *c_memset "memset"(void *target, int value, size_t size) nogil
    size_t c_strlen "strlen"(const char *text) nogil
    void *c_memcpy "memcpy"(void *target, const void *source, size_t size) nogil

cdef extern from "Python.h":
    bint PyUnicode_CheckExact(object thing)
    bint PyTuple_CheckExact(object thing)
    bint PyLong_CheckExact(object thing)
    object PyUnicode_FromStringAndSize(const char *text, Py_ssize_t size)
    object PyUnicode_FromString(const char *text)
    object PyUnicode_DecodeFSDefault(const char *text)
    object PyUnicode_EncodeFSDefault(object text)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    bint PyUnicode_IS_ASCII(object text)
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1
    object PyByteArray_FromStringAndSize(const char *data, Py_ssize_t size)

cdef Py_ssize_t DATAGRAM_BLOCK
cdef Py_ssize_t DATAGRAM_ROOM
cdef Py_ssize_t READ_SIZE


cdef class DatagramSocket:
    cdef readonly object sock
    cdef public int fd
    cdef readonly int family
    cdef readonly bint has_own_methods


cdef class DatagramCalls(NotifyCalls):
    cdef bytearray _block
    cdef bint _receives_many
    cdef bint _sends_many

    cpdef Py_ssize_t recv_datagrams(self, DatagramSocket sock, list into, Py_ssize_t limit) except? -65536
    cpdef Py_ssize_t send_datagram(self, DatagramSocket sock, object data, object address) except? -65536
    cpdef Py_ssize_t send_datagrams(self, DatagramSocket sock, list queue, Py_ssize_t first) except? -65536


cpdef Py_ssize_t receive_by_object(DatagramCalls calls, DatagramSocket sock, list into) except? -65536
cpdef Py_ssize_t send_by_object(DatagramSocket sock, object data, object address) except? -65536


# Addresses.


cdef inline object read_address(sockaddr_storage *address, unsigned int length):
    # As socket.recvfrom gives it.
    cdef char text[64]
    cdef sockaddr_in *ipv4
    cdef sockaddr_in6 *ipv6
    cdef char *path
    if length == 0:
        return None
    if address.ss_family == AF_INET:
        ipv4 = <sockaddr_in *>address
        return (PyUnicode_FromStringAndSize(text, show_ipv4(ipv4.sin_addr.s_addr, text)), <int>ntohs(ipv4.sin_port))
    if address.ss_family == AF_INET6:
        ipv6 = <sockaddr_in6 *>address
        inet_ntop(AF_INET6, &ipv6.sin6_addr, text, sizeof(text))
        return (
            PyUnicode_FromString(text),
            <int>ntohs(ipv6.sin6_port),
            ntohl(ipv6.sin6_flowinfo),
            ipv6.sin6_scope_id,
        )
    if address.ss_family == AF_UNIX:
        path = path_of(address)
        if length > PATH_AT and path[0] == 0:
            return PyBytes_FromStringAndSize(path, length - PATH_AT)
        (<char *>address)[length if length < sizeof(sockaddr_storage) else sizeof(sockaddr_storage) - 1] = 0
        return PyUnicode_DecodeFSDefault(path) if length > PATH_AT else ""
    return None


cdef inline long long small_number(object number, long long largest) noexcept:
    # A number from 0 to `largest`, or -1: it is for Python to say what is wrong with it.
    cdef int overflow = 0
    cdef long long value
    if not PyLong_CheckExact(number):
        return -1
    value = PyLong_AsLongLongAndOverflow(number, &overflow)
    return -1 if overflow or value < 0 or value > largest else value


cdef inline bint numeric_host(int family, object host, void *into) except -1:
    cdef Py_ssize_t size = 0
    cdef const char *text
    if not PyUnicode_CheckExact(host) or not PyUnicode_IS_ASCII(host):
        return False
    text = PyUnicode_AsUTF8AndSize(host, &size)
    return size < 64 and <Py_ssize_t>c_strlen(text) == size and inet_pton(family, text, into) == 1


cdef inline unsigned int write_address(int family, object address, sockaddr_storage *into) except? 65536:
    # Returns the length, or 0 if only Python knows what to do with this address.
    cdef sockaddr_in *ipv4
    cdef sockaddr_in6 *ipv6
    cdef long long port, flow_info = 0, scope_id = 0
    cdef Py_ssize_t size
    if family == AF_UNIX:
        return write_path(address, into)
    if family == 0 or not PyTuple_CheckExact(address):
        return 0
    size = len(<tuple>address)
    if size < 2:
        return 0
    port = small_number((<tuple>address)[1], 0xFFFF)
    if port < 0:
        return 0
    c_memset(into, 0, sizeof(sockaddr_in6))
    if family == AF_INET:
        ipv4 = <sockaddr_in *>into
        if size != 2 or not numeric_host(AF_INET, (<tuple>address)[0], &ipv4.sin_addr):
            return 0
        ipv4.sin_family = AF_INET
        ipv4.sin_port = htons(<uint16_t>port)
        return sizeof(sockaddr_in)
    ipv6 = <sockaddr_in6 *>into
    if size > 2:
        flow_info = small_number((<tuple>address)[2], 0xFFFFF)
    if size > 3:
        scope_id = small_number((<tuple>address)[3], 0xFFFFFFFF)
    if size > 4 or flow_info < 0 or scope_id < 0:
        return 0
    if not numeric_host(AF_INET6, (<tuple>address)[0], &ipv6.sin6_addr):
        return 0
    ipv6.sin6_family = AF_INET6
    ipv6.sin6_port = htons(<uint16_t>port)
    ipv6.sin6_flowinfo = htonl(<uint32_t>flow_info)
    ipv6.sin6_scope_id = <uint32_t>scope_id
    return sizeof(sockaddr_in6)


cdef inline unsigned int write_path(object address, sockaddr_storage *into) except? 65536:
    cdef bytes path
    cdef Py_ssize_t size
    if PyBytes_CheckExact(address):
        path = address
    elif PyUnicode_CheckExact(address):
        try:
            path = PyUnicode_EncodeFSDefault(address)
        except UnicodeError:
            return 0
    else:
        return 0
    size = len(path)
    if size == 0 or size >= PATH_SIZE or (path[0] != 0 and 0 in path):
        return 0
    into.ss_family = AF_UNIX
    c_memcpy(path_of(into), PyBytes_AS_STRING(path), size + 1)
    return PATH_AT + <unsigned int>size + (0 if path[0] == 0 else 1)


# Receiving.


cdef inline Py_ssize_t receive_datagrams(DatagramCalls calls, DatagramSocket sock, list into, Py_ssize_t limit) except? -65536:
    cdef mmsghdr messages[32]
    cdef sockaddr_storage senders[32]
    cdef iovec vectors[32]
    cdef Py_ssize_t room, count, index, at
    cdef char *block
    if limit < 1:
        return -EINVAL
    if sock.family == 0:
        return receive_by_object(calls, sock, into)
    room = DATAGRAM_ROOM if sock.family != AF_UNIX else READ_SIZE
    count = min(limit, DATAGRAM_BLOCK // room, 32)
    if calls._block is None or len(calls._block) < DATAGRAM_BLOCK:
        calls._block = PyByteArray_FromStringAndSize(NULL, DATAGRAM_BLOCK)
    block = calls._block
    if not calls._receives_many:
        count = 1
    for index in range(count):
        vectors[index].iov_base = block + index * room
        vectors[index].iov_len = room
        c_memset(&messages[index].msg_hdr, 0, sizeof(msghdr))
        messages[index].msg_hdr.msg_name = &senders[index]
        messages[index].msg_hdr.msg_namelen = sizeof(sockaddr_storage)
        messages[index].msg_hdr.msg_iov = &vectors[index]
        messages[index].msg_hdr.msg_iovlen = 1
    if count > 1:
        count = c_recvmmsg(sock.fd, messages, <unsigned int>count, MSG_DONTWAIT)
        if count < 0:
            if c_errno != ENOSYS and c_errno != EPERM:
                return -c_errno
            calls._receives_many = False
            return receive_datagrams(calls, sock, into, 1)
    else:
        count = c_recvfrom(
            sock.fd, block, room, MSG_DONTWAIT, <sockaddr *>&senders[0], &messages[0].msg_hdr.msg_namelen
        )
        if count < 0:
            return -c_errno
        messages[0].msg_len = <unsigned int>count
        count = 1
    # The bytes first: nothing but these lines may use the block until they are out of it.
    at = len(into)
    for index in range(count):
        into.append(PyBytes_FromStringAndSize(block + index * room, messages[index].msg_len))
        into.append(None)
    for index in range(count):
        into[at + 2 * index + 1] = read_address(&senders[index], messages[index].msg_hdr.msg_namelen)
    return count


# Sending.


cdef inline Py_ssize_t send_one(DatagramSocket sock, object data, object address) except? -65536:
    cdef sockaddr_storage target
    cdef unsigned int length = 0
    cdef Py_buffer view
    cdef Py_ssize_t size
    if sock.has_own_methods:
        return send_by_object(sock, data, address)
    if address is not None:
        length = write_address(sock.family, address, &target)
        if length == 0:
            return send_by_object(sock, data, address)
    if PyBytes_CheckExact(data):
        size = c_sendto(
            sock.fd,
            PyBytes_AS_STRING(data),
            PyBytes_GET_SIZE(data),
            MSG_NOSIGNAL | MSG_DONTWAIT,
            <sockaddr *>&target if length else NULL,
            length,
        )
        return size if size >= 0 else -c_errno
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        size = c_sendto(
            sock.fd,
            view.buf,
            view.len,
            MSG_NOSIGNAL | MSG_DONTWAIT,
            <sockaddr *>&target if length else NULL,
            length,
        )
        return size if size >= 0 else -c_errno
    finally:
        PyBuffer_Release(&view)


cdef inline Py_ssize_t send_queued(DatagramCalls calls, DatagramSocket sock, list queue, Py_ssize_t first) except? -65536:
    cdef mmsghdr messages[32]
    cdef sockaddr_storage targets[32]
    cdef iovec vectors[32]
    cdef Py_ssize_t count = 0, result
    cdef unsigned int length
    cdef tuple datagram
    cdef bytes data
    if first < 0 or first >= len(queue):
        return -EINVAL
    if calls._sends_many and not sock.has_own_methods:
        while count < 32 and first + count < len(queue):
            datagram = queue[first + count]
            data = datagram[0]
            if data is None:
                break
            length = 0
            if datagram[1] is not None:
                length = write_address(sock.family, datagram[1], &targets[count])
                if length == 0:
                    break
            vectors[count].iov_base = PyBytes_AS_STRING(data)
            vectors[count].iov_len = PyBytes_GET_SIZE(data)
            c_memset(&messages[count].msg_hdr, 0, sizeof(msghdr))
            messages[count].msg_hdr.msg_name = &targets[count] if length else NULL
            messages[count].msg_hdr.msg_namelen = length
            messages[count].msg_hdr.msg_iov = &vectors[count]
            messages[count].msg_hdr.msg_iovlen = 1
            count += 1
        if count > 1:
            count = c_sendmmsg(sock.fd, messages, <unsigned int>count, MSG_NOSIGNAL | MSG_DONTWAIT)
            if count > 0:
                return count
            if c_errno != ENOSYS and c_errno != EPERM:
                return -c_errno
            calls._sends_many = False
    datagram = queue[first]
    result = send_one(sock, datagram[0], datagram[1])
    return 1 if result >= 0 else result
