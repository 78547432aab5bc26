from libc.errno cimport EAGAIN, EINVAL, ENOSYS, EPERM, EXDEV, errno as c_errno
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport strlen as c_strlen
from posix.fcntl cimport AT_FDCWD, F_SETFL, O_CLOEXEC, O_NONBLOCK, fcntl as c_fcntl
from posix.stat cimport S_ISREG
from posix.uio cimport iovec
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from whorl.core.kernel.datagrams cimport DatagramCalls

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)
    long c_syscall "syscall"(long number, ...)

cdef extern from "<sys/syscall.h>":
    enum: SYS_statx
    enum: SYS_preadv2

cdef extern from "<fcntl.h>" nogil:
    enum: AT_EMPTY_PATH
    enum: O_NOFOLLOW
    enum: O_PATH

# From the kernel's headers. Those of some systems are older than openat2 and than the mount in struct statx. Before
# version 1.2.5, those of musl have nothing of preadv2.
cdef enum:
    RWF_NOWAIT = 0x8
    SYS_OPENAT2 = 437
    RESOLVE_CACHED = 0x20
    AT_STATX_DONT_SYNC = 0x4000
    STATX_BASIC = 0x203  # type, mode and size
    STATX_ANY_MOUNT = 0x5000  # STATX_MNT_ID or STATX_MNT_ID_UNIQUE

cdef struct OpenHow:
    uint64_t flags
    uint64_t mode
    uint64_t resolve

cdef struct Statx:
    uint32_t mask
    uint32_t not_read[6]
    uint16_t mode
    uint16_t spare[5]
    uint64_t size
    uint64_t times[10]
    uint32_t numbers[2]
    uint32_t device[2]  # the file system's
    uint64_t mount
    uint64_t more[13]

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


cdef inline int open_cached(const char *path, int flags) noexcept:
    # Open a path if it can be looked up in memory.
    cdef OpenHow how
    how.flags = O_CLOEXEC | flags
    how.mode = 0
    how.resolve = RESOLVE_CACHED
    return <int>c_syscall(SYS_OPENAT2, AT_FDCWD, path, &how, sizeof(how))


cdef inline int ask_status(int fd, Statx *status) noexcept:
    return <int>c_syscall(
        SYS_statx, fd, <const char *>b"", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BASIC | STATX_ANY_MOUNT, status
    )


cdef inline Py_ssize_t read_cached(int fd, char *buffer, size_t size, int64_t offset) noexcept:
    # Read bytes that are in memory. The C library would not tell that the kernel has no such call.
    cdef iovec vector
    vector.iov_base = buffer
    vector.iov_len = size
    return c_syscall(SYS_preadv2, fd, &vector, <long>1, <long>offset, <long>(offset >> 32), RWF_NOWAIT)


cdef inline object mount_of(int fd):
    cdef Statx status
    if ask_status(fd, &status) != 0 or not status.mask & STATX_ANY_MOUNT:
        return None
    return mount_key(&status)


cdef inline object mount_key(Statx *status):
    # The device too, because the numbers of mounts were used again before Linux 6.8.
    return (status.mount, (<uint64_t>status.device[0] << 32) | status.device[1])


cdef inline int look_up(FileCalls calls, object path, bint follow, Statx *status) except? -65536:
    # Open a path for its status only, if the file is in memory and on a local disk.
    cdef bytes encoded = path if PyBytes_CheckExact(path) else PyUnicode_EncodeFSDefault(path)
    cdef int fd
    if not calls._opens_now or <Py_ssize_t>c_strlen(PyBytes_AS_STRING(encoded)) != PyBytes_GET_SIZE(encoded):
        return -EAGAIN
    fd = open_cached(PyBytes_AS_STRING(encoded), O_PATH if follow else O_PATH | O_NOFOLLOW)
    if fd < 0:
        if c_errno == ENOSYS or c_errno == EPERM or c_errno == EINVAL:
            calls._opens_now = False
        return -EAGAIN
    if ask_status(fd, status) != 0 or not status.mask & STATX_ANY_MOUNT or status.mask & STATX_BASIC != STATX_BASIC:
        c_close(fd)
        return -EAGAIN
    is_local = calls._local_mounts.get(mount_key(status))
    if not is_local:
        c_close(fd)
        return -EXDEV if is_local is None else -EAGAIN
    return fd


cdef inline object file_status_now(FileCalls calls, object path, bint follow):
    cdef Statx status
    cdef int fd = look_up(calls, path, follow, &status)
    cdef object answer
    if fd < 0:
        return fd
    try:
        answer = _fstat(fd)
    except OSError:
        answer = -EAGAIN
    finally:
        c_close(fd)
    return answer


cdef inline int open_regular(FileCalls calls, object path, uint64_t *size) except? -65536:
    # Open twice: opening a device or a FIFO to learn its type would have effects.
    cdef bytes encoded = path if PyBytes_CheckExact(path) else PyUnicode_EncodeFSDefault(path)
    cdef Statx status
    cdef int fd, fd_of_path = look_up(calls, encoded, True, &status)
    if fd_of_path < 0:
        return fd_of_path
    c_close(fd_of_path)
    if not S_ISREG(status.mode):
        return -EAGAIN
    fd = open_cached(PyBytes_AS_STRING(encoded), O_NONBLOCK)
    if fd < 0:
        return -EAGAIN
    if ask_status(fd, &status) != 0 or not S_ISREG(status.mode):
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
        count = read_cached(fd, PyBytes_AS_STRING(data) + done, size - done, offset + done)
        if count < 0:
            if c_errno == ENOSYS:
                calls._reads_now = False
            return -EAGAIN
        if count == 0:
            return PyBytes_FromStringAndSize(PyBytes_AS_STRING(data), done)
        done += count
    return data
