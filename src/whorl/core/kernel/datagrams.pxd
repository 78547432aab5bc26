from libc.errno cimport EINVAL, ENOSYS, EPERM, errno as c_errno
from libc.string cimport memset
from posix.uio cimport iovec
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE

from whorl.core cimport limits
from whorl.core.kernel.socket_addresses cimport AF_UNIX, AddressBook, shown, sockaddr, sockaddr_storage, written
from whorl.core.kernel.message_buffers cimport MessageMemory, message_of

cdef extern from "<unistd.h>":
    long c_syscall "syscall"(long number, ...)

cdef extern from "<sys/syscall.h>":  # The C library's functions for them may be loops.
    enum: SYS_recvmmsg
    enum: SYS_sendmmsg

cdef extern from "<sys/socket.h>":
    struct msghdr:
        void *msg_name
        unsigned int msg_namelen
        iovec *msg_iov
        size_t msg_iovlen
    struct mmsghdr:
        msghdr msg_hdr
        unsigned int msg_len
    int MSG_NOSIGNAL
    int MSG_DONTWAIT
    ssize_t c_sendto "sendto"(int fd, const void *data, size_t size, int flags, const sockaddr *address, unsigned int length)
    ssize_t c_recvfrom "recvfrom"(int fd, void *data, size_t size, int flags, sockaddr *address, unsigned int *length)

cdef extern from "Python.h":
    object PyByteArray_FromStringAndSize(const char *data, Py_ssize_t size)


cdef class DatagramSocket:
    cdef readonly object sock
    cdef public int fd
    cdef readonly int family
    cdef public object known
    cdef readonly bint overrides_methods


cdef class DatagramCalls(MessageMemory):
    cdef bytearray _block
    cdef AddressBook _addresses
    cdef bint _receives_many
    cdef bint _sends_many

    cpdef Py_ssize_t recv_datagrams(self, DatagramSocket sock, list into, Py_ssize_t limit) except? -65536
    cpdef Py_ssize_t send_datagram(self, DatagramSocket sock, object data, object address) except? -65536
    cpdef Py_ssize_t send_datagrams(self, DatagramSocket sock, list queue, Py_ssize_t first) except? -65536


cpdef Py_ssize_t receive_by_object(DatagramCalls calls, DatagramSocket sock, list into) except? -65536
cpdef Py_ssize_t send_by_object(DatagramSocket sock, object data, object address) except? -65536


# Receiving.


cdef inline Py_ssize_t receive_datagrams(DatagramCalls calls, DatagramSocket sock, list into, Py_ssize_t limit) except? -65536:
    cdef mmsghdr messages[32]
    cdef sockaddr_storage senders[32]
    cdef iovec vectors[32]
    cdef Py_ssize_t capacity, count, index, at
    cdef char *block
    if limit < 1:
        return -EINVAL
    if sock.family == 0:
        return receive_by_object(calls, sock, into)
    capacity = limits.DATAGRAM_SIZE if sock.family != AF_UNIX else limits.READ_SIZE
    count = min(limit, limits.DATAGRAM_BLOCK // capacity, 32)
    if calls._block is None or len(calls._block) < limits.DATAGRAM_BLOCK:
        calls._block = PyByteArray_FromStringAndSize(NULL, limits.DATAGRAM_BLOCK)
    if calls._addresses is None:
        calls._addresses = AddressBook()
    block = calls._block
    if not calls._receives_many:
        count = 1
    for index in range(count):
        vectors[index].iov_base = block + index * capacity
        vectors[index].iov_len = capacity
        memset(&messages[index].msg_hdr, 0, sizeof(msghdr))
        messages[index].msg_hdr.msg_name = &senders[index]
        messages[index].msg_hdr.msg_namelen = sizeof(sockaddr_storage)
        messages[index].msg_hdr.msg_iov = &vectors[index]
        messages[index].msg_hdr.msg_iovlen = 1
    if count > 1:
        count = c_syscall(SYS_recvmmsg, sock.fd, messages, count, MSG_DONTWAIT, NULL)
        if count < 0:
            if c_errno != ENOSYS and c_errno != EPERM:
                return -c_errno
            calls._receives_many = False
            return receive_datagrams(calls, sock, into, 1)
    else:
        count = c_recvfrom(
            sock.fd, block, capacity, MSG_DONTWAIT, <sockaddr *>&senders[0], &messages[0].msg_hdr.msg_namelen
        )
        if count < 0:
            return -c_errno
        messages[0].msg_len = <unsigned int>count
        count = 1
    # The bytes first: nothing but these lines may use the block until they are out of it.
    at = len(into)
    for index in range(count):
        into.append(message_of(calls, block + index * capacity, messages[index].msg_len))
        into.append(None)
    for index in range(count):
        into[at + 2 * index + 1] = shown(calls._addresses, &senders[index], messages[index].msg_hdr.msg_namelen)
    return count


# Sending.


cdef inline Py_ssize_t send_one(
    DatagramCalls calls, DatagramSocket sock, object data, object address
) except? -65536:
    cdef Py_buffer view
    if sock.overrides_methods:
        return send_by_object(sock, data, address)
    if PyBytes_CheckExact(data):
        return send_content(calls, sock, data, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), address)
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return send_content(calls, sock, data, view.buf, view.len, address)
    finally:
        PyBuffer_Release(&view)


cdef inline Py_ssize_t send_content(
    DatagramCalls calls, DatagramSocket sock, object data, const void *content, Py_ssize_t size, object address
) except? -65536:
    # The address is written last: the entries of the book may change whenever Python code runs.
    cdef sockaddr_storage storage
    cdef sockaddr_storage *target = NULL
    cdef unsigned int length = 0
    if address is not None:
        target = &storage
        length = written(calls._addresses, sock.family, address, &target)
        if length == 0:
            return send_by_object(sock, data, address)
    size = c_sendto(sock.fd, content, size, MSG_NOSIGNAL | MSG_DONTWAIT, <sockaddr *>target, length)
    return size if size >= 0 else -c_errno


cdef inline Py_ssize_t send_queued(DatagramCalls calls, DatagramSocket sock, list queue, Py_ssize_t first) except? -65536:
    cdef mmsghdr messages[32]
    cdef sockaddr_storage targets[32]
    cdef sockaddr_storage *target
    cdef iovec vectors[32]
    cdef Py_ssize_t count = 0, result
    cdef unsigned int length
    cdef tuple datagram
    cdef bytes data
    if first < 0 or first >= len(queue):
        return -EINVAL
    if calls._sends_many and not sock.overrides_methods:
        while count < 32 and first + count < len(queue):
            datagram = queue[first + count]
            data = datagram[0]
            if data is None:
                break
            length = 0
            target = &targets[count]
            if datagram[1] is not None:
                length = written(calls._addresses, sock.family, datagram[1], &target)
                if length == 0:
                    break
            vectors[count].iov_base = PyBytes_AS_STRING(data)
            vectors[count].iov_len = PyBytes_GET_SIZE(data)
            memset(&messages[count].msg_hdr, 0, sizeof(msghdr))
            messages[count].msg_hdr.msg_name = target if length else NULL
            messages[count].msg_hdr.msg_namelen = length
            messages[count].msg_hdr.msg_iov = &vectors[count]
            messages[count].msg_hdr.msg_iovlen = 1
            count += 1
        if count > 1:
            count = c_syscall(SYS_sendmmsg, sock.fd, messages, count, MSG_NOSIGNAL | MSG_DONTWAIT)
            if count > 0:
                return count
            if c_errno != ENOSYS and c_errno != EPERM:
                return -c_errno
            calls._sends_many = False
    datagram = queue[first]
    result = send_one(calls, sock, datagram[0], datagram[1])
    return 1 if result >= 0 else result
