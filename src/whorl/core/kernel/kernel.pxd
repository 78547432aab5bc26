from libc.errno cimport EINVAL, ENOSYS, EPERM, errno as c_errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from posix.signal cimport sigaddset, sigemptyset
from posix.types cimport sigset_t
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport PyObject

from whorl.core cimport limits
from whorl.core.kernel.message_buffers cimport message_of
from whorl.core.kernel.sockets cimport IPPROTO_TCP, TCP_NODELAY, SocketCalls, c_setsockopt
from whorl.core.threads cimport shared_int

cdef extern from "<time.h>" nogil:
    ctypedef long time_t
    struct timespec:
        time_t tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec *now)
    int CLOCK_MONOTONIC

cdef extern from "<unistd.h>" nogil:
    ssize_t c_read "read"(int fd, void *buffer, size_t size)
    ssize_t c_write "write"(int fd, const void *buffer, size_t size)
    int c_close "close"(int fd)
    long c_syscall "syscall"(long number, ...)

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len
    ssize_t c_writev "writev"(int fd, const iovec *vectors, int count)

cdef extern from "<sys/socket.h>" nogil:
    struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen
    ssize_t c_recv "recv"(int fd, void *buffer, size_t size, int flags)
    ssize_t c_send "send"(int fd, const void *buffer, size_t size, int flags)
    ssize_t c_sendmsg "sendmsg"(int fd, const msghdr *message, int flags)
    int MSG_NOSIGNAL
    int MSG_DONTWAIT
    int MSG_MORE

cdef extern from "<sys/sendfile.h>" nogil:
    ssize_t c_sendfile "sendfile64"(int target, int source, int64_t *offset, size_t count)

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        uint64_t u64
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int EPOLL_CLOEXEC
    int c_epoll_create "epoll_create1"(int flags)
    int c_epoll_ctl "epoll_ctl"(int epfd, int op, int fd, epoll_event *event)
    int c_epoll_wait "epoll_wait"(int epfd, epoll_event *events, int size, int timeout_ms)

cdef extern from "<sys/eventfd.h>" nogil:
    int EFD_CLOEXEC
    int EFD_NONBLOCK
    int c_eventfd "eventfd"(unsigned int value, int flags)

cdef extern from "<sys/syscall.h>":
    enum: SYS_epoll_pwait

cdef enum:
    SYS_EPOLL_PWAIT2 = 441  # newer than the headers of some systems

cdef extern from "<signal.h>" nogil:
    enum: SIG_BLOCK
    int pthread_sigmask(int how, const sigset_t *change, sigset_t *former)

cdef extern from *:
    object owned "(PyObject *)"(PyObject *thing)  # the caller's reference; a cast would count one more

cdef extern from "whorl/core/kernel/kernel.h":
    int64_t read_ticks "whorl_read_ticks"() noexcept nogil
    bint watch_names "whorl_watch_names"(dict names, shared_int *answer) noexcept
    bint look_at_name "whorl_look_at_name"(dict names, str name, shared_int *answer) noexcept

cdef extern from "Python.h":
    PyObject *new_bytes "PyBytes_FromStringAndSize"(const char *content, Py_ssize_t size) except NULL
    int resize_bytes "_PyBytes_Resize"(PyObject **data, Py_ssize_t size) except -1
    char *bytes_memory "PyBytes_AS_STRING"(PyObject *data)
    void drop_reference "Py_DECREF"(PyObject *thing)

ctypedef ssize_t (*transfer_t)(int fd, const void *buffer, size_t size) noexcept nogil

cdef dict _time_names
cdef bint _are_names_watched
cdef shared_int _is_clock_patched  # a thread that forgets it holds the lock of those who note it

cdef bint look_at_clock() except -1


cdef inline bint clock_is_patched() except -1:
    cdef int answer = _is_clock_patched  # once, as another thread may forget it meanwhile
    return answer if answer >= 0 else look_at_clock()


cdef inline bint watch_time() noexcept:
    return watch_names(_time_names, &_is_clock_patched)


cdef inline bint look_and_note() noexcept:
    return look_at_name(_time_names, "monotonic", &_is_clock_patched)


cdef inline bytearray new_scratch():
    # Not cleared: clearing would touch all of the memory, which takes longer than making the rest of a loop.
    return PyByteArray_FromStringAndSize(NULL, limits.READ_SIZE)


cdef inline int64_t monotonic_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


cdef inline uint64_t mask_with(int number) noexcept nogil:
    # The signals that this thread holds back, and one more, as the kernel's 64 bits.
    cdef sigset_t held
    cdef uint64_t mask
    sigemptyset(&held)
    pthread_sigmask(SIG_BLOCK, NULL, &held)
    sigaddset(&held, number)
    memcpy(&mask, &held, sizeof(mask))
    return mask


cdef inline ssize_t socket_recv(int fd, const void *buffer, size_t size) noexcept nogil:
    return c_recv(fd, <void *>buffer, size, MSG_DONTWAIT)


cdef inline ssize_t socket_send(int fd, const void *buffer, size_t size) noexcept nogil:
    return c_send(fd, buffer, size, MSG_NOSIGNAL | MSG_DONTWAIT)


cdef inline ssize_t socket_send_more(int fd, const void *buffer, size_t size) noexcept nogil:
    return c_send(fd, buffer, size, MSG_NOSIGNAL | MSG_DONTWAIT | MSG_MORE)


cdef inline int push_held(int fd) noexcept:
    cdef int on = 1
    return 0 if c_setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0 else -c_errno


cdef inline ssize_t file_read(int fd, const void *buffer, size_t size) noexcept nogil:
    return c_read(fd, <void *>buffer, size)


cdef inline ssize_t file_write(int fd, const void *buffer, size_t size) noexcept nogil:
    return c_write(fd, buffer, size)


cdef inline object receive(Kernel kernel, transfer_t transfer, int fd, Py_ssize_t limit):
    # Short messages are received into one buffer that is used again and copied, so that no large
    # allocation is made for each.
    if limits.LONG_READ <= limit < limits.READ_SIZE:
        return receive_long(transfer, fd, limit)
    return receive_short(kernel, transfer, fd, limit)


cdef inline object receive_short(Kernel kernel, transfer_t transfer, int fd, Py_ssize_t limit):
    cdef char *buffer = kernel._scratch
    cdef Py_ssize_t size
    if limit < 0:
        return -EINVAL
    size = transfer(fd, buffer, limit if limit < limits.READ_SIZE else limits.READ_SIZE)
    if size < 0:
        return -c_errno
    return message_of(kernel, buffer, size)


cdef inline object receive_long(transfer_t transfer, int fd, Py_ssize_t limit):
    # Receive into an object of this size, which is then cut to the received length.
    cdef PyObject *data = new_bytes(NULL, limit)
    cdef Py_ssize_t size = transfer(fd, bytes_memory(data), limit)
    cdef int code
    if size < 0:
        code = c_errno
        drop_reference(data)
        return -code
    if size < limit:
        resize_bytes(&data, size)
    return owned(data)


cdef inline Py_ssize_t receive_into(transfer_t transfer, int fd, object target) except? -65536:
    cdef Py_buffer view
    cdef Py_ssize_t size
    PyObject_GetBuffer(target, &view, PyBUF_WRITABLE)
    try:
        size = transfer(fd, view.buf, view.len)
        return size if size >= 0 else -c_errno
    finally:
        PyBuffer_Release(&view)


cdef inline Py_ssize_t transmit(transfer_t transfer, int fd, object data, Py_ssize_t offset) except? -65536:
    cdef Py_buffer view
    cdef Py_ssize_t size
    cdef char *start
    if PyBytes_CheckExact(data):
        if offset < 0 or offset > PyBytes_GET_SIZE(data):
            return -EINVAL
        if PyBytes_GET_SIZE(data) - offset < limits.RELEASE_GIL_SIZE:
            size = transfer(fd, PyBytes_AS_STRING(data) + offset, PyBytes_GET_SIZE(data) - offset)
            return size if size >= 0 else -c_errno
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if offset < 0 or offset > view.len:
            return -EINVAL
        start = <char *>view.buf + offset
        with nogil:
            size = transfer(fd, start, view.len - offset)
            if size < 0:
                size = -c_errno
        return size
    finally:
        PyBuffer_Release(&view)


cdef inline Py_ssize_t transmit_vectors(bint is_socket, int fd, list chunks, Py_ssize_t first,
                                        Py_ssize_t offset) except? -65536:
    # The chunks are bytes objects, so that their addresses stay valid without buffer exports.
    cdef iovec vectors[64]
    cdef char buffer[4096]
    cdef msghdr message
    cdef Py_ssize_t count = 0, index = first, size, total = 0
    cdef bytes chunk
    if first < 0 or first >= len(chunks) or offset < 0:
        return -EINVAL
    while count < limits.WRITE_VECTORS and index < len(chunks):
        chunk = chunks[index]
        if chunk is None or offset > PyBytes_GET_SIZE(chunk):
            return -EINVAL
        vectors[count].iov_base = PyBytes_AS_STRING(chunk) + offset
        vectors[count].iov_len = PyBytes_GET_SIZE(chunk) - offset
        total += PyBytes_GET_SIZE(chunk) - offset
        offset = 0
        count += 1
        index += 1
    if is_socket and total <= <Py_ssize_t>sizeof(buffer):
        # The kernel takes twice as long for sixteen short pieces as for one.
        size = 0
        for index in range(count):
            memcpy(buffer + size, vectors[index].iov_base, vectors[index].iov_len)
            size += vectors[index].iov_len
        size = socket_send(fd, buffer, total)
    elif is_socket:
        memset(&message, 0, sizeof(message))
        message.msg_iov = vectors
        message.msg_iovlen = count
        size = c_sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT)
    else:
        size = c_writev(fd, vectors, <int>count)
    return size if size >= 0 else -c_errno


cdef inline Py_ssize_t send_file(int target, int source, int64_t offset, Py_ssize_t count) except? -65536:
    # The file may have to be read from the disk, so other threads run meanwhile.
    cdef int64_t position = offset
    cdef Py_ssize_t size
    if offset < 0 or count < 0:
        return -EINVAL
    with nogil:
        size = c_sendfile(target, source, &position, count)
        if size < 0:
            size = -c_errno
    return size


cdef class EventBatch:
    cdef epoll_event *_events
    cdef bytearray _buffer
    cdef int _count
    cdef list _rows

    cdef int fd(self, Py_ssize_t index) noexcept
    cdef uint32_t mask(self, Py_ssize_t index) noexcept
    cdef uint32_t generation(self, Py_ssize_t index) noexcept
    cpdef object put(self, int fd, uint32_t mask, uint32_t generation)
    cpdef object clear(self)


cdef inline bytearray event_buffer(EventBatch batch):
    # Not cleared: most loops never have more than a few events at a time.
    if batch._buffer is None:
        batch._buffer = PyByteArray_FromStringAndSize(NULL, limits.EVENTS_PER_POLL * sizeof(epoll_event))
        batch._events = <epoll_event *>PyByteArray_AS_STRING(batch._buffer)
    return batch._buffer


cdef inline Py_ssize_t batch_size(EventBatch batch) noexcept:
    return batch._count


cdef inline int batch_fd(EventBatch batch, Py_ssize_t index) noexcept:
    # A cast, not a mask: Cython makes a Python object of a literal beyond 31 bits.
    return <int><uint32_t>batch._events[index].data.u64


cdef inline uint32_t batch_mask(EventBatch batch, Py_ssize_t index) noexcept:
    return batch._events[index].events


cdef inline uint32_t batch_generation(EventBatch batch, Py_ssize_t index) noexcept:
    return <uint32_t>(batch._events[index].data.u64 >> 32)


cdef inline object batch_put(EventBatch batch, int fd, uint32_t mask, uint32_t generation):
    if batch._count >= limits.EVENTS_PER_POLL or batch._events is NULL:
        raise IndexError("the batch is full")
    batch._events[batch._count].events = mask
    batch._events[batch._count].data.u64 = (<uint64_t>generation << 32) | <uint32_t>fd
    batch._count += 1


cdef inline int change_watch(Kernel kernel, int epfd, int operation, int fd, uint32_t mask, uint32_t generation):
    cdef epoll_event event
    event.events = mask
    event.data.u64 = (<uint64_t>generation << 32) | <uint32_t>fd
    return 0 if c_epoll_ctl(epfd, operation, fd, &event) == 0 else -c_errno


cdef inline int new_epoll(Kernel kernel) except? -65536:
    cdef int fd = c_epoll_create(EPOLL_CLOEXEC)
    return fd if fd >= 0 else -c_errno


cdef inline int new_eventfd() except? -65536:
    cdef int fd = c_eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
    return fd if fd >= 0 else -c_errno


cdef inline int close_descriptor(Kernel kernel, int fd) noexcept:
    return 0 if c_close(fd) == 0 else -c_errno


cdef inline int spin_for_events(int epfd, epoll_event *events, int64_t until_ns) noexcept nogil:
    cdef int count
    while True:
        count = c_epoll_wait(epfd, events, limits.EVENTS_PER_POLL, 0)
        if count != 0 or monotonic_ns() >= until_ns:
            return count if count >= 0 else -c_errno


cdef inline int wait_for_events(Kernel kernel, int epfd, int64_t timeout_ns, EventBatch batch) except? -65536:
    # The loop runs signal handlers, before this and afterwards if it brought nothing. One that arrives while this
    # spins must not wait for the end of the sleep that follows.
    cdef timespec limit
    cdef int count = -1, timeout_ms
    cdef int64_t began_ns, spin_ns
    cdef uint64_t mask = 0
    cdef uint64_t *held = NULL
    if timeout_ns == 0:
        count = c_epoll_wait(epfd, batch._events, limits.EVENTS_PER_POLL, 0)
        if count < 0:
            count = -c_errno
        batch._count = count if count > 0 else 0
        return count
    if kernel.spin_ns > 0:
        began_ns = monotonic_ns()
        spin_ns = min(kernel.spin_ns, limits.LONGEST_SPIN_NS)
        if 0 < timeout_ns < spin_ns:
            spin_ns = timeout_ns
        with nogil:
            count = spin_for_events(epfd, batch._events, began_ns + spin_ns)
        if count == 0:
            PyErr_CheckSignals()
        if count != 0 or spin_ns == timeout_ns:
            batch._count = count if count > 0 else 0
            return count
        if timeout_ns > 0:
            timeout_ns = max(1, timeout_ns - (monotonic_ns() - began_ns))
    if kernel.blocked_signal:
        mask = mask_with(kernel.blocked_signal)
        held = &mask
    if timeout_ns > 0 and kernel._fine_sleep:
        limit.tv_sec = <time_t>(timeout_ns // 1000000000)
        limit.tv_nsec = <long>(timeout_ns % 1000000000)
        with nogil:
            count = <int>c_syscall(SYS_EPOLL_PWAIT2, epfd, batch._events, limits.EVENTS_PER_POLL, &limit, held, <size_t>8)
            if count < 0:
                count = -c_errno
        if count == -ENOSYS or count == -EPERM or count == -EINVAL:
            kernel._fine_sleep = False
    if timeout_ns < 0 or not kernel._fine_sleep:
        # Rounded up: after a sleep that ends early, the loop would only sleep again.
        timeout_ms = -1 if timeout_ns < 0 else <int>((timeout_ns + 999999) // 1000000)
        with nogil:
            if held == NULL:
                count = c_epoll_wait(epfd, batch._events, limits.EVENTS_PER_POLL, timeout_ms)
            else:
                count = <int>c_syscall(SYS_epoll_pwait, epfd, batch._events, limits.EVENTS_PER_POLL, timeout_ms, held, <size_t>8)
            if count < 0:
                count = -c_errno
    batch._count = count if count > 0 else 0
    return count


cdef class Kernel(SocketCalls):
    cdef bytearray _scratch
    cdef dict _epolls
    cdef bint _fine_sleep
    cdef public int blocked_signal
    cdef public int64_t spin_ns
    cdef public bint keeps_edges
    cdef public bint may_skip_polls
    cdef public bint accepts_descriptors

    cpdef int64_t now(self) except? -1
    cpdef int64_t ticks(self) except? -1
    cpdef object recv(self, int fd, Py_ssize_t limit)
    cpdef object recv_short(self, int fd, Py_ssize_t limit)
    cpdef Py_ssize_t recv_into(self, int fd, object buffer) except? -65536
    cpdef Py_ssize_t send(self, int fd, object data, Py_ssize_t offset) except? -65536
    cpdef Py_ssize_t send_more(self, int fd, object data, Py_ssize_t offset) except? -65536
    cpdef int push(self, int fd) except? -65536
    cpdef Py_ssize_t send_many(self, int fd, list chunks, Py_ssize_t first, Py_ssize_t offset) except? -65536
    cpdef object read(self, int fd, Py_ssize_t limit)
    cpdef Py_ssize_t read_into(self, int fd, object buffer) except? -65536
    cpdef Py_ssize_t write(self, int fd, object data, Py_ssize_t offset) except? -65536
    cpdef Py_ssize_t write_many(self, int fd, list chunks, Py_ssize_t first, Py_ssize_t offset) except? -65536
    cpdef Py_ssize_t sendfile(self, int target, int source, int64_t offset, Py_ssize_t count) except? -65536
    cpdef int close(self, int fd) except? -65536
    cpdef int epoll_create(self) except? -65536
    cpdef int epoll_ctl(self, int epfd, int operation, int fd, uint32_t mask, uint32_t generation) except? -65536
    cpdef int epoll_wait(self, int epfd, int64_t timeout_ns, EventBatch events) except? -65536
    cpdef int eventfd(self) except? -65536
