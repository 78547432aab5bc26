cimport cython
from libc cimport errno
from cpython.object cimport PyObject, PyTypeObject

from whorl.aio.interop.stock cimport (
    has_stock_connection_methods, has_stock_sockets, is_stock_client_factory, is_stock_socket
)
from whorl.aio.sockets.connect_attempt cimport ConnectAttempt
from whorl.aio.sockets.watch cimport release_fd_for_transport
from whorl.aio.streams.adoption cimport attach_new_feed
from whorl.aio.streams.feed cimport StreamWait, attributes_of
from whorl.aio.transports.fd_table cimport TransportTable
from whorl.aio.transports.stream cimport StreamTransport, new
from whorl.core.kernel.kernel cimport Kernel
from whorl.core.loop.loop cimport Loop
from whorl.core.pollers.contract cimport IOHandle, Poller

cdef extern from "Python.h":
    object copy_context "PyContext_CopyCurrent"()
    PyTypeObject *type_of "Py_TYPE"(object thing)

ctypedef object (*binding_t)(object member, PyObject *instance, PyObject *owner)

cdef int AF_INET, AF_INET6, AF_UNIX, SOCK_STREAM, SOCK_DGRAM, IPPROTO_TCP, IPPROTO_UDP, UNKNOWN_ADDRESS
cdef str ANY_ADDRESS
cdef object CONNECTION_METHODS
cdef object FAMILY
cdef object KIND
cdef object PROTOCOL
cdef object SocketTransport


cdef inline int number_in(object sock, object member) except? -1:
    # By name, `__get__` would be looked up and wrapped.
    return (<binding_t>type_of(member).tp_descr_get)(member, <PyObject *>sock, NULL)


@cython.locals(machine=Loop, attributes=dict)
cpdef bint is_stock_loop(object loop) except -1
@cython.locals(found=int)
cpdef ConnectAttempt connect_to_numbers(object loop, object host, object port, object family, object protocol, object flags)
@cython.locals(machine=Loop, kernel=Kernel, poller=Poller, table=TransportTable, fd=int, code=int, made=ConnectAttempt)
cpdef ConnectAttempt connect_descriptor(object loop, int family, int protocol, object address)
@cython.locals(machine=Loop, table=TransportTable, family=int, kind=int, fd=int, code=int, attempt=ConnectAttempt)
cpdef ConnectAttempt connect_socket(object loop, object sock, object address)
@cython.locals(wait=StreamWait)
cpdef tuple open_transport(ConnectAttempt attempt, object address, object protocol_factory)
@cython.locals(machine=Loop, fd=int, transport=StreamTransport)
cpdef object begin_transport(ConnectAttempt attempt, object protocol, object waiter)
@cython.locals(machine=Loop, family=int, fd=int, transport=StreamTransport)
cpdef object transport_over_socket(object loop, object sock, object protocol, object waiter, object context)
