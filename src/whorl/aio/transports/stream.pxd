cimport cython
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int64_t, uint64_t

from whorl.aio.transports cimport states
from whorl.aio.transports.byte_transport cimport BaseTransport, WriteTransport
from whorl.aio.transports.connection_set cimport ConnectionSet
from whorl.aio.interop.stock cimport connection_made_of
from whorl.aio.streams.adoption cimport attach_feed, end_arrived
from whorl.aio.streams.feed cimport StreamFeed
from whorl.aio.tls.engine cimport TLSEngine
from whorl.aio.transports.fd_table cimport TransportTable
from whorl.core cimport limits
from whorl.core.callback cimport AbstractLoop, flag
from whorl.core.loop.held_writes cimport HeldWrites
from whorl.core.loop.lifecycle cimport LoopLifecycle
from whorl.core.loop.state cimport thread_number
from whorl.core.pollers.contract cimport IOHandle
from whorl.handles.streams.engine cimport Stream, count_closed, count_opened, count_read, count_sent

cdef extern from "whorl/aio/transports/stream.h":
    bint deliver_catching "whorl_deliver_catching"(object protocol, str method, object argument) noexcept


cdef inline int go_on_raising() except -1:
    return -1


cdef tuple NO_ARGUMENTS
cdef int QUIET_WRITES, AF_UNIX
cdef object BufferedProtocol
cdef object StreamReaderProtocol


cdef class StreamTransport(WriteTransport):
    cdef public object _server
    cdef ConnectionSet _clients
    cdef readonly object _empty_waiter
    cdef StreamFeed _feed
    cdef tuple _kind
    cdef object _peer
    cdef uint64_t _ipv4_peer
    cdef object _sockname
    cdef int _slot
    cdef int64_t _run
    cdef unsigned int _pieces
    cdef unsigned int _expected_pieces
    cdef object _shown_socket
    cdef flag _is_made
    cdef flag _buffered
    cdef flag _protocol_is_tls
    cdef readonly flag _eof_written
    cdef flag _write_shut
    cdef flag _can_hold
    cdef flag _is_held

    @cython.locals(code=Py_ssize_t)
    cdef Py_ssize_t _send(self, object data, Py_ssize_t size) except? -65536
    cdef object _send_all(self, list chunks, Py_ssize_t size)
    @cython.locals(held=HeldWrites)
    cdef bint _count_piece(self) except -1
    @cython.locals(siblings=ConnectionSet)
    cdef object _learn_pieces(self)
    cdef bint _is_tuned(self) except -1
    cdef ConnectionSet _siblings(self)
    cdef bint _may_hold(self) except -1
    @cython.locals(held=HeldWrites, sent=Py_ssize_t)
    cdef Py_ssize_t _send_more(self, object data, Py_ssize_t size) except? -65536
    cdef object _push(self)
    cdef object _report_unsent(self)
    @cython.locals(data=bytes, size=Py_ssize_t)
    cdef object _read(self)
    @cython.locals(limit=Py_ssize_t)
    cdef object _read_much(self)
    @cython.locals(feed=StreamFeed)
    cdef object _data_arrived(self, bytes data)
    cdef object _data_refused(self, object error)
    @cython.locals(feed=StreamFeed)
    cdef object _end_arrived(self)
    cdef object _read_failed(self, int code)
    cdef object _write_failed(self, int code)
    cdef object _sent_all(self)
    cdef object _check_writable(self, str method)
    cdef bint _count_lost_write(self) except -1
    cpdef int _shut_write_side(self) except? -65536
    cpdef object _socket(self)
    cdef object _show_socket(self)
    cdef object _peer_left(self)
    cpdef int fileno(self) except -2
    @cython.locals(machine=LoopLifecycle)
    cdef object _set_up(self, AbstractLoop loop)
    @cython.locals(machine=LoopLifecycle, table=TransportTable)
    cdef object _init_connected(
        self, object loop, int fd, tuple kind, tuple names, object protocol, object context, object sock,
        object waiter
    )
    cdef object _register_with_server(self, object server, ConnectionSet clients)
    cdef object _set_protocol(self, object protocol)
    cdef object _release_socket(self)
    @cython.locals(clients=ConnectionSet)
    cdef object _unregister_from_server(self)
    cdef object _leave_poller(self)
    cdef object _take_over_watch(self, IOHandle former, int seen)
    cdef object _end(self, object error)
    @cython.locals(table=TransportTable)
    cdef object _close_handle(self)
    cdef object _release_now(self)
    cdef object _read_into_buffer(self)
    @cython.locals(engine=TLSEngine, result=Py_ssize_t)
    cdef object _read_records(self)


cdef inline bint is_made(StreamTransport transport) noexcept:
    return transport._is_made


cdef inline object new(object cls):
    # Do what `cls.__new__(cls)` does for a class without such a method in Python. Python looks for one.
    return (<PyTypeObject *>cls).tp_new(<type>cls, <PyObject *>NO_ARGUMENTS, NULL)
