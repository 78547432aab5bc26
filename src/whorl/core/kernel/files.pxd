from libc.errno cimport EAGAIN, EINVAL, ENOSYS, EPERM, EXDEV, errno as c_errno
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from whorl.core.kernel.datagrams cimport DatagramCalls

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)

cdef extern from "whorl/core/kernel/files.h":
    struct statx_t "whorl_statx":
        uint32_t mask
        uint16_t mode
        uint64_t size
        uint32_t device_numbers[4]
        uint64_t mount
    int c_openat2 "whorl_openat2"(const char *path, bint for_reading, bint follow) nogil
    int c_statx "whorl_statx"(int fd, statx_t *status) nogil
    ssize_t c_preadv2 "whorl_preadv2"(int fd, void *buffer, size_t size, int64_t offset) nogil
    uint32_t STATX_BASIC "WHORL_STATX_BASIC"
    uint32_t STATX_ANY_MOUNT "WHORL_STATX_ANY_MOUNT"
    bint S_ISREG(uint32_t mode) nogil
    size_t c_strlen "strlen"(const char *text) nogil
    int c_fcntl "fcntl"(int fd, int operation, ...) nogil
    int F_SETFL

cdef extern from "Python.h":
    object PyUnicode_EncodeFSDefault(object text)

cdef object _fstat


cdef class FileCalls(DatagramCalls):
    cdef dict _local_mounts
    cdef bint _opens_now
    cdef bint _reads_now

    cpdef object status_now(self, object path, bint follow)
    cpdef object content_now(self, object path, Py_ssize_t limit)
    cpdef int open_now(self, object path) except? -65536
    cpdef object read_now(self, int fd, Py_ssize_t size, int64_t offset)


cdef inline object mount_of(int fd):
    cdef statx_t status
    if c_statx(fd, &status) != 0 or not status.mask & STATX_ANY_MOUNT:
        return None
    return mount_key(&status)


cdef inline object mount_key(statx_t *status):
    # The device too, because the numbers of mounts were used again before Linux 6.8.
    return (status.mount, (<uint64_t>status.device_numbers[2] << 32) | status.device_numbers[3])


cdef inline int look_up(FileCalls calls, object path, bint follow, statx_t *status) except? -65536:
    # Open a path for its status only, if the file is in memory and on a local disk.
    cdef bytes encoded = path if PyBytes_CheckExact(path) else PyUnicode_EncodeFSDefault(path)
    cdef int fd
    if not calls._opens_now or <Py_ssize_t>c_strlen(PyBytes_AS_STRING(encoded)) != PyBytes_GET_SIZE(encoded):
        return -EAGAIN
    fd = c_openat2(PyBytes_AS_STRING(encoded), False, follow)
    if fd < 0:
        if c_errno == ENOSYS or c_errno == EPERM or c_errno == EINVAL:
            calls._opens_now = False
        return -EAGAIN
    if c_statx(fd, status) != 0 or not status.mask & STATX_ANY_MOUNT or status.mask & STATX_BASIC != STATX_BASIC:
        c_close(fd)
        return -EAGAIN
    is_local = calls._local_mounts.get(mount_key(status))
    if not is_local:
        c_close(fd)
        return -EXDEV if is_local is None else -EAGAIN
    return fd


cdef inline object file_status_now(FileCalls calls, object path, bint follow):
    cdef statx_t status
    cdef int fd = look_up(calls, path, follow, &status)
    if fd < 0:
        return fd
    try:
        return _fstat(fd)
    except OSError:
        return -EAGAIN
    finally:
        c_close(fd)


cdef inline int open_regular(FileCalls calls, object path, uint64_t *size) except? -65536:
    # Twice: opening a device or a FIFO to see what it is would change the world.
    cdef bytes encoded = path if PyBytes_CheckExact(path) else PyUnicode_EncodeFSDefault(path)
    cdef statx_t status
    cdef int fd, fd_of_path = look_up(calls, encoded, True, &status)
    if fd_of_path < 0:
        return fd_of_path
    c_close(fd_of_path)
    if not S_ISREG(status.mode):
        return -EAGAIN
    fd = c_openat2(PyBytes_AS_STRING(encoded), True, True)
    if fd < 0:
        return -EAGAIN
    if c_statx(fd, &status) != 0 or not S_ISREG(status.mode):
        c_close(fd)
        return -EAGAIN
    size[0] = status.size
    return fd


cdef inline int open_file_now(FileCalls calls, object path) except? -65536:
    cdef uint64_t size
    cdef int fd = open_regular(calls, path, &size)
    if fd >= 0:
        c_fcntl(fd, F_SETFL, 0)  # It was opened without waiting, and need not stay so.
    return fd


cdef inline object file_content_now(FileCalls calls, object path, Py_ssize_t limit):
    cdef uint64_t size
    cdef int fd
    if not calls._reads_now:
        return -EAGAIN
    fd = open_regular(calls, path, &size)
    if fd < 0:
        return fd
    try:
        if size > <uint64_t>limit:
            return -EAGAIN
        content = read_file_now(calls, fd, <Py_ssize_t>size + 1, 0)
        # If one byte more than the size was read, the file has grown, and may be even longer by now.
        return content if not PyBytes_CheckExact(content) or <uint64_t>len(content) <= size else -EAGAIN
    finally:
        c_close(fd)


cdef inline object read_file_now(FileCalls calls, int fd, Py_ssize_t size, int64_t offset):
    cdef bytes data = PyBytes_FromStringAndSize(NULL, size)
    cdef Py_ssize_t done = 0, count
    while done < size:
        count = c_preadv2(fd, PyBytes_AS_STRING(data) + done, size - done, offset + done)
        if count < 0:
            if c_errno == ENOSYS:
                calls._reads_now = False
            return -EAGAIN
        if count == 0:
            return PyBytes_FromStringAndSize(PyBytes_AS_STRING(data), done)
        done += count
    return data
