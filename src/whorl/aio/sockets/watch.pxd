cimport cython
from libc cimport errno
from libc.limits cimport INT_MAX

from whorl.aio.sockets cimport states
from whorl.aio.transports.byte_transport cimport Py_IS_TYPE, PyMethodDescr_Type, PyMethodDescrObject
from whorl.aio.transports.fd_table cimport TransportTable
from whorl.aio.transports.pipe cimport ReadPipe, WritePipe
from whorl.aio.interop.class_snapshot cimport version_of
from whorl.aio.interop.reusable_future cimport ReusableFuture
from whorl.aio.sockets.connect_attempt cimport ConnectAttempt
from whorl.aio.sockets.interest cimport interest
from whorl.core cimport limits, states as events
from whorl.core.callback cimport Callback, drop_callback, has_single_reference
from whorl.core.loop.loop cimport Loop
from whorl.core.pollers.contract cimport IOHandle, Poller

cdef int WAIT, OVER, AGAIN, DRAINED, HUNG_UP, URGENT

cdef extern from "Python.h":
    long PyLong_AsLongAndOverflow(object number, int *overflow) except? -1
    enum: METH_NOARGS

cdef object SOCKET
cdef object FILENO
cdef unsigned int _version_of_sockets

cdef inline bint is_possible(object fd) except -1:
    cdef int overflow
    cdef long number = PyLong_AsLongAndOverflow(fd, &overflow)
    return not overflow and 0 <= number <= INT_MAX


cdef bint has_plain_methods() except -1


cdef inline bint is_plain(object sock) except -1:
    # A changed class has another version, or 0.
    if type(sock) is not SOCKET:
        return False
    return _version_of_sockets != 0 and _version_of_sockets == version_of(SOCKET) or has_plain_methods()


cdef inline object plain_fileno(object sock):
    return (<PyMethodDescrObject *>FILENO).d_method.ml_meth(sock, None)


cdef inline bint takes_no_arguments(object method) noexcept:
    return Py_IS_TYPE(method, &PyMethodDescr_Type) and (<PyMethodDescrObject *>method).d_method.ml_flags == METH_NOARGS


cdef class SocketWait(ReusableFuture):
    cdef readonly DescriptorWatch _watched
    cdef object _attempt
    cdef Py_ssize_t _size
    cdef object _result

    cpdef object withdraw(self)
    cdef int _try(self, int fd) except -1


cdef class DescriptorWatch(IOHandle):
    cdef public object fileobj
    cdef public Callback reader
    cdef public Callback writer
    cdef public SocketWait receiver
    cdef public SocketWait sender
    cdef Loop _event_loop
    cdef readonly object _owner
    cdef int _kind
    cdef int _unread
    cdef Py_ssize_t _last_size
    cdef int _idle_events
    cdef SocketWait _last_wait
    cdef SocketWait _previous_wait

    cdef object _note_owner(self, object sock)
    @cython.locals(writer=Callback, sender=SocketWait)
    cpdef object _on_events(self, int seen)
    @cython.locals(reader=Callback)
    cdef object _on_readable(self, int seen)
    cdef object _call(self, Callback callback)
    @cython.locals(outcome=int)
    cdef object _make_attempt(self, SocketWait wait)
    @cython.locals(call=Callback)
    cdef object _wake_now(self, SocketWait wait)
    cpdef object attempt_soon(self)
    cdef object _count_idle_event(self, int seen)
    cdef object _keep_other_direction(self, int others)
    cdef object update_drained(self, Py_ssize_t size, Py_ssize_t limit)
    cdef bint belongs_to(self, object sock) except -1
    cdef bint is_stale(self) except -1
    @cython.locals(wait=SocketWait)
    cdef SocketWait _new_wait(self, Py_ssize_t size)
    @cython.locals(waiting=int, former=int, plan=int, wanted=int)
    cdef object _watch(self, bint replaced)
    cdef object _rewatch(self, int wanted, bint edge)
    @cython.locals(former=Callback, waited=SocketWait)
    cpdef bint set_reader(self, Callback callback) except -1
    @cython.locals(former=Callback, waited=SocketWait)
    cpdef bint set_writer(self, Callback callback) except -1
    cpdef object set_receiver(self, SocketWait wait)
    cpdef object set_sender(self, SocketWait wait)
    cpdef object forget(self, SocketWait wait)
    cpdef object detach_all(self)


@cython.locals(facts=int)
cdef int facts_of(int seen) except -1
cpdef int kind_of(object sock) except -1
cpdef object descriptor_of(object fileobj)
cpdef object number_of(object fileobj)
cpdef object ensure_no_transport(Loop loop, object fileobj)
@cython.locals(table=TransportTable)
cpdef object refuse_transport(Loop loop, object fileobj, object fd, IOHandle handle)
cpdef object release_fd_for_transport(Loop loop, object sock)
@cython.locals(watch=DescriptorWatch)
cpdef DescriptorWatch new_watch(Loop loop, int fd, object sock=*)
cpdef object keep_spare(Loop loop, DescriptorWatch watch)
@cython.locals(watch=DescriptorWatch)
cdef DescriptorWatch taken_spare(Loop loop)
@cython.locals(fd=int, found=IOHandle, watch=DescriptorWatch)
cpdef DescriptorWatch watch_for(Loop loop, object sock)
@cython.locals(fd=int, found=IOHandle, watch=DescriptorWatch)
cpdef object receive(Loop loop, object sock, Py_ssize_t limit)
cdef object received(Loop loop, DescriptorWatch watch, int fd, Py_ssize_t limit)
cpdef object receive_usually(Loop loop, object sock, object limit)
@cython.locals(sent=Py_ssize_t, machine=Loop)
cpdef object send_usually(Loop loop, object sock, object data)
