cimport cython
from libc.stdint cimport int64_t, uint32_t

from whorl.core cimport limits
from whorl.core.kernel.datagrams cimport DatagramSocket, receive_by_object, send_by_object
from whorl.core.kernel.kernel cimport EventBatch
from whorl.sim.chance.decisions cimport Stream
from whorl.sim.files.epoll cimport Epoll, Watch
from whorl.sim.files.file cimport DescriptorTable, File
from whorl.sim.files.udp cimport DatagramFile, UdpSocket
from whorl.sim.process.file_calls cimport DiskCalls

cdef int64_t AGAIN, _LAST_PORT
cdef tuple _NOTHING

cdef int _only_again(int64_t code) except? -65536
cdef bint _is_numeric(DatagramFile file, object address) except -1


cdef class OpenDatagrams:
    cdef int64_t changes
    cdef int fd
    cdef DatagramFile file
    cdef DescriptorTable table


cdef class SimKernel(DiskCalls):
    cdef Stream _again
    cdef Stream _fails
    cdef bint _is_driven
    cdef str _poll_stream
    cdef double _refuses
    cdef Stream _short
    cdef double _shortens
    cdef public Epoll epoll

    cpdef int64_t now(self) except? -1
    cpdef int64_t ticks(self) except? -1
    cpdef int epoll_create(self) except? -65536
    @cython.locals(file=File, code=int)
    cpdef int epoll_ctl(self, int epfd, int operation, int fd, uint32_t mask, uint32_t generation) except? -65536
    @cython.locals(epoll=Epoll, file=File, watch=Watch, found=list, noted=list)
    cpdef int epoll_wait(self, int epfd, int64_t timeout_ns, EventBatch events) except? -65536
    cpdef int eventfd(self) except? -65536
    cdef bint _is_refused(self, File file) except -1
    @cython.locals(part=int64_t)
    cdef int64_t _cut(self, File file, int64_t size) except? -1
    @cython.locals(file=File)
    cpdef object recv(self, int fd, Py_ssize_t limit)
    cpdef object recv_short(self, int fd, Py_ssize_t limit)
    cpdef Py_ssize_t recv_into(self, int fd, object buffer) except? -65536
    @cython.locals(file=File, content=bytes, part=Py_ssize_t, sent=Py_ssize_t)
    cpdef Py_ssize_t send(self, int fd, object data, Py_ssize_t offset) except? -65536
    @cython.locals(file=File, sent=Py_ssize_t)
    cpdef Py_ssize_t send_more(self, int fd, object data, Py_ssize_t offset) except? -65536
    @cython.locals(file=File)
    cpdef int push(self, int fd) except? -65536
    cpdef Py_ssize_t send_many(self, int fd, list chunks, Py_ssize_t first, Py_ssize_t offset) except? -65536
    cpdef object read(self, int fd, Py_ssize_t limit)
    cpdef Py_ssize_t read_into(self, int fd, object buffer) except? -65536
    cpdef Py_ssize_t write(self, int fd, object data, Py_ssize_t offset) except? -65536
    cpdef Py_ssize_t write_many(self, int fd, list chunks, Py_ssize_t first, Py_ssize_t offset) except? -65536
    cpdef int close(self, int fd) except? -65536
    cpdef object receive_datagram(self, int fd, DatagramFile file, bint peeks=*)
    cpdef int64_t send_datagram_to(self, int fd, DatagramFile file, bytes data, object address) except? -65536
    @cython.locals(received=Py_ssize_t, code=int)
    cpdef Py_ssize_t recv_datagrams(self, DatagramSocket sock, list into, Py_ssize_t limit) except? -65536
    @cython.locals(known=OpenDatagrams)
    cdef OpenDatagrams _datagrams_of(self, DatagramSocket sock)
    @cython.locals(known=OpenDatagrams, data=bytes)
    cdef int _receive_one(self, DatagramSocket sock, list into) except? -65536
    @cython.locals(known=OpenDatagrams, sent=int64_t, content=bytes)
    cpdef Py_ssize_t send_datagram(self, DatagramSocket sock, object data, object address) except? -65536
