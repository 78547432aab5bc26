from libc.stdint cimport int64_t

from whorl.core.kernel.kernel cimport Kernel
from whorl.sim.chance.decisions cimport Stream
from whorl.sim.files.file cimport DescriptorTable, File
from whorl.sim.process.digest cimport Digest
from whorl.sim.wire.clock cimport HostClock


cdef class DiskCalls(Kernel):
    cdef Stream _cached
    cdef object _disk
    cdef Stream _disk_errors
    cdef Stream _disk_times
    cdef int64_t _name
    cdef readonly Digest digest
    cdef readonly object faults
    cdef readonly HostClock host
    cdef readonly DescriptorTable table

    cpdef object status_now(self, object path, bint follow)
    cpdef object content_now(self, object path, Py_ssize_t limit)
    cpdef int open_now(self, object path) except? -65536
    cpdef object read_now(self, int fd, Py_ssize_t size, int64_t offset)
    cpdef Py_ssize_t sendfile(self, int target, int source, int64_t offset, Py_ssize_t count) except? -65536
    cdef object _add_call(self, str call, tuple details)
    cdef File _file(self, int fd)


cdef class Entries:
    cdef object _rows
