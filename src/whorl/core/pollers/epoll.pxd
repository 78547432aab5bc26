cimport cython
from libc cimport errno
from libc.stdint cimport int64_t, uint32_t, uint64_t

from whorl.core cimport limits, states
from whorl.core.kernel.kernel cimport EventBatch, Kernel, batch_fd, batch_generation, batch_mask
from whorl.core.pollers.contract cimport IOHandle, Poller, next_generation, saw, watcher

cdef uint32_t EPOLLIN, EPOLLPRI, EPOLLOUT, EPOLLERR, EPOLLHUP, EPOLLRDHUP, EPOLLET
cdef int ADD, DEL, MOD, CLOSED, LOST, INHERITED


@cython.locals(mask=uint32_t)
cdef uint32_t mask_of(int interest, bint edge) except? 0xFFFFFFFF
@cython.locals(seen=int)
cdef int seen_in(uint32_t mask) except? -1


cdef class EpollPoller(Poller):
    cdef Kernel _kernel
    cdef int _epfd
    cdef EventBatch _events
    cdef uint32_t _generations
    cdef bint _may_skip_polls
    cdef bint _ends_later
    cdef int _ended
    cdef list _refused
    cdef int _outer
    cdef int _inherited

    @cython.locals(generation=uint32_t, mask=uint32_t, result=int, first=int, former=IOHandle)
    cpdef object add(self, IOHandle handle, int interest)
    @cython.locals(mask=uint32_t, result=int)
    cpdef object modify(self, IOHandle handle, int interest)
    @cython.locals(fd=int)
    cpdef object remove(self, IOHandle handle)
    @cython.locals(fd=int)
    cpdef object remove_later(self, IOHandle handle)
    cpdef object hand_over(self)
    cdef object _end_watch(self)
    cpdef object forget(self, IOHandle handle)
    @cython.locals(events=EventBatch, count=int, found=Py_ssize_t)
    cpdef Py_ssize_t poll(self, int64_t timeout_ns, list into) except -1
    @cython.locals(events=EventBatch, found=Py_ssize_t, index=int, fd=int, handle=IOHandle)
    cdef Py_ssize_t _collect(self, int count, list into) except -1
    @cython.locals(handle=IOHandle, mask=uint32_t)
    cdef object _rearm(self)
    cdef object _stale(self, int fd)
    @cython.locals(handle=IOHandle)
    cdef object _rebuild(self)
    @cython.locals(mask=uint32_t, result=int)
    cdef object _watch(self, IOHandle handle)
    @cython.locals(handle=IOHandle)
    cdef int64_t _watch_refused(self, int64_t timeout_ns) except? -65536
    @cython.locals(epfd=int)
    cdef object _open(self)
    @cython.locals(epfd=int)
    cdef int _new_epoll(self) except -1
    @cython.locals(result=int)
    cdef object _put_into(self, int outer, int epfd, int made)
    cdef object _find_set(self)
    @cython.locals(epfd=int)
    cdef object _close_all(self)
