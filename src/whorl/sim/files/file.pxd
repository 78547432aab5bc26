from libc.stdint cimport int64_t

cimport cython

from whorl.sim.wire.clock cimport HostClock


cdef int _FIRST


cdef class Watcher:
    cpdef object wake(self)
    cpdef object end(self)


cdef class File:
    cdef public object flags
    cdef public bint is_whole
    cdef public HostClock machine
    cdef public Py_ssize_t references
    cdef public list watches

    cpdef int readiness(self) except? -1
    @cython.locals(watch=Watcher)
    cpdef object changed(self)
    cpdef object read(self, int64_t limit)
    cpdef int64_t write(self, bytes data) except? -65536
    cpdef object await_room(self)
    cpdef object released(self)
    cpdef object reset(self)
    cpdef object fail(self, int code)
    cpdef int64_t patience(self) except? -1


cdef class DescriptorTable:
    cdef list _free
    cdef int _next
    cdef list _open
    cdef public int64_t changes
    cdef public dict files
    cdef readonly set inherited
    cdef public Py_ssize_t limit

    @cython.locals(place=Py_ssize_t)
    cdef File find(self, int fd)
    cpdef int add(self, File file, int lowest=*) except? -65536
    cpdef int remove(self, int fd) except? -65536


cpdef object unreferenced(File file)


cdef class Counter(File):
    cdef public object count

    cpdef int readiness(self) except? -1
    cpdef object read(self, int64_t limit)
    cpdef int64_t write(self, bytes data) except? -65536
