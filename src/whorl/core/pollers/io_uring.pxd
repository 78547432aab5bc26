cimport cython
from libc.stdint cimport int64_t, uint32_t

from whorl.core.callback cimport current_thread
from whorl.core.pollers.epoll cimport mask_of, seen_in
from whorl.core.kernel.kernel cimport Kernel
from whorl.core.pollers.contract cimport IOHandle, Poller, next_generation
from whorl.core.pollers.io_uring_rings cimport Ring

cdef int EVENTS_PER_POLL
cdef int URGENT


cdef class UringPoller(Poller):
    cdef Kernel _kernel
    cdef Ring _ring
    cdef uint32_t _generations
    cdef list _to_arm
    cdef bint _eager
    cdef object _thread

    @cython.locals(fd=int, is_known=bint, former=IOHandle)
    cpdef object add(self, IOHandle handle, int interest)
    cpdef object modify(self, IOHandle handle, int interest)
    @cython.locals(fd=int)
    cpdef object remove(self, IOHandle handle)
    @cython.locals(code=int)
    cdef bint _know(self, int fd) except -1
    cdef object _arm(self, IOHandle handle)
    @cython.locals(to_arm=list, done=Py_ssize_t, fd=int, handle=IOHandle)
    cdef object _arm_all(self)
    @cython.locals(later=list)
    cdef object _rearm(self)
    cpdef object hand_over(self)
    @cython.locals(ring=Ring, code=int, found=Py_ssize_t, doubtful=list, later=list)
    cpdef Py_ssize_t poll(self, int64_t timeout_ns, list into) except -1
    @cython.locals(ring=Ring, found=Py_ssize_t, handle=IOHandle, result=int, again=list)
    cdef Py_ssize_t _collect(self, list into, list doubtful) except -1
    @cython.locals(handle=IOHandle)
    cdef object _move(self)
    cdef object _open(self)
    @cython.locals(handle=IOHandle)
    cpdef object close(self)
