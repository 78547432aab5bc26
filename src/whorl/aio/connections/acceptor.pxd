cimport cython
from libc cimport errno

from cpython.ref cimport PyObject

from whorl.aio.transports.byte_transport cimport PyContext_Enter, PyContext_Exit
from whorl.aio.transports.connection_set cimport ConnectionSet
from whorl.aio.transports.stream cimport StreamTransport, new
from whorl.aio.transports.fd_table cimport TransportTable
from whorl.aio.sockets.connect_plain cimport is_stock_loop
from whorl.core cimport limits, states
from whorl.core.kernel.kernel cimport Kernel
from whorl.core.loop.lifecycle cimport LoopLifecycle
from whorl.core.pollers.contract cimport IOHandle

cdef extern from "Python.h":
    object copy_of "PyContext_Copy"(object context)

cdef object SocketTransport
cdef tuple EXHAUSTED
cdef tuple WOULD_BLOCK


cdef class AcceptedConnection


cdef class Acceptor(IOHandle):
    cdef public object _event_loop
    cdef public object _server
    cdef public object _sock
    cdef public tuple _kind
    cdef ConnectionSet _clients
    cdef TransportTable _table
    cdef object _retry_timer
    cdef list _accepted
    cdef bint _has_failed
    cdef int _taken

    cpdef object _on_events(self, int seen)
    @cython.locals(kernel=Kernel, descriptors=bint, attempt=int)
    cdef object _accept(self)
    @cython.locals(machine=LoopLifecycle)
    cdef object _run_again(self)
    cdef AcceptedConnection _owned(self, tuple accepted)
    cdef object _begin_soon(self, tuple accepted)
    @cython.locals(accepted=tuple)
    cdef object _begin_accepted(self)
    @cython.locals(fd=int)
    cdef object _close_accepted(self)
    cdef bint _accepts_descriptors(self) except -1
    @cython.locals(made=StreamTransport)
    cdef object _begin(self, int fd, tuple accepted, object context)
    @cython.locals(machine=LoopLifecycle, transport=StreamTransport)
    cdef StreamTransport _transport_over(self, int fd, tuple accepted, object protocol, object context)
    cdef object _pause_accepting(self, object error)
    cdef object _report(self, object error)
    cpdef object _release(self)


cdef class AcceptedConnection:
    cdef Acceptor _acceptor
    cdef tuple _accepted
    cdef int _fd

    @cython.locals(acceptor=Acceptor, transport=StreamTransport)
    cpdef object begin(self, object protocol, object context)
    @cython.locals(fd=int)
    cpdef object close(self)


cdef inline int owned_fd(AcceptedConnection connection) noexcept:
    return -1 if connection._acceptor is None else connection._fd


cdef inline bint is_initialized(Acceptor acceptor) noexcept:
    return acceptor._accepted is not None


cdef inline object begin_in_context(Acceptor acceptor, int fd, tuple accepted, object context):
    PyContext_Enter(<PyObject *>context)
    try:
        acceptor._begin(fd, accepted, context)
    finally:
        PyContext_Exit(<PyObject *>context)
