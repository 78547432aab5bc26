from libc.errno cimport errno as c_errno
from libc.stdint cimport uint32_t

from whorl.core.kernel.terminal cimport TerminalCalls

cdef extern from "<sys/inotify.h>" nogil:
    int IN_CLOEXEC
    int IN_NONBLOCK
    int c_inotify_init1 "inotify_init1"(int flags)
    int c_inotify_add_watch "inotify_add_watch"(int fd, const char *path, uint32_t mask)
    int c_inotify_rm_watch "inotify_rm_watch"(int fd, int watch)


cdef inline int new_notifier() noexcept:
    cdef int fd = c_inotify_init1(IN_CLOEXEC | IN_NONBLOCK)
    return fd if fd >= 0 else -c_errno


cdef inline int watch_path(int fd, bytes path, uint32_t mask) except? -65536:
    cdef const char *text = path
    cdef int watch
    with nogil:  # the path may lie on a slow file system
        watch = c_inotify_add_watch(fd, text, mask)
        if watch < 0:
            watch = -c_errno
    return watch


cdef inline int unwatch_path(int fd, int watch) noexcept:
    return 0 if c_inotify_rm_watch(fd, watch) == 0 else -c_errno


cdef class NotifyCalls(TerminalCalls):
    cpdef int inotify_create(self) except? -65536
    cpdef int inotify_add(self, int fd, bytes path, uint32_t mask) except? -65536
    cpdef int inotify_remove(self, int fd, int watch) except? -65536
