from libc.stdint cimport int64_t

cimport cython

from whorl.sim.files.file cimport File, Watcher

cdef int64_t ALWAYS, EPOLLET
cdef int EPOLLIN


cdef class Watch(Watcher):
    cdef readonly Epoll epoll
    cdef readonly File file
    cdef readonly int fd
    cdef public int64_t generation
    cdef public int64_t mask
    cdef public int64_t seen

    @cython.locals(epoll=Epoll)
    cpdef object wake(self)
    cpdef object end(self)


cdef class Epoll(File):
    cdef public dict ready
    cdef readonly dict watched

    cpdef int readiness(self) except? -1
    @cython.locals(watch=Watch)
    cpdef int change(self, int operation, File file, int fd, int64_t mask, int64_t generation) except? -65536
    @cython.locals(watch=Watch, found=list, is_only=bint)
    cpdef list collect(self, Py_ssize_t limit)
    @cython.locals(watch=Watch)
    cpdef object released(self)
