cimport cython

from whorl.aio.transports cimport states
from whorl.aio.transports.byte_transport cimport BaseTransport, WriteTransport
from whorl.core cimport states as events
from whorl.core.kernel.kernel cimport Kernel
from whorl.handles.streams.engine cimport Stream

cdef int QUIET_WRITES


@cython.locals(kernel=Kernel)
cdef object attach_pipe(BaseTransport transport, object pipe, str complaint)
cdef int with_own_descriptor(BaseTransport transport, int duplicate) except? -65536
cdef int without_descriptor(BaseTransport transport, int duplicate) except? -65536
cdef object release_pipe(BaseTransport transport, int duplicate)


cdef class ReadPipe(BaseTransport):
    cdef int _duplicate

    cdef object _start_reading(self)
    cdef object _update_interest(self)
    cdef object _data_arrived(self, bytes data)
    cdef object _end_arrived(self)
    cdef object _read_failed(self, int code)
    cpdef object _release_fd(self)
    cpdef object _release(self)


cdef class WritePipe(WriteTransport):
    cdef int _duplicate
    cdef bint _watches_peer

    cdef object _start_reading(self)
    cdef object _update_interest(self)
    @cython.locals(wanted=int)
    cdef object _watch(self)
    cdef object _handle_events(self, int seen)
    cdef object _reader_left(self)
    cdef bint _count_lost_write(self) except -1
    cdef object _write_failed(self, int code)
    cdef object _sent_some(self)
    cdef object _sent_all(self)
    cpdef object _release_fd(self)
    cpdef object _release(self)
