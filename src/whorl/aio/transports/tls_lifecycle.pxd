cimport cython

from whorl.aio.streams.adoption cimport adopted_connection_made
from whorl.aio.tls cimport states
from whorl.aio.tls.engine cimport TLSEngine
from whorl.aio.transports.stream cimport StreamTransport
from whorl.aio.transports.tls_stream cimport TLSStream


cdef class TLSLifecycle(TLSEngine):
    cdef object _handshake_timeout
    cdef object _shutdown_timeout
    cdef public object _sslcontext
    cdef public dict _extra
    cdef object _waiter
    cdef readonly int _app_state
    cdef object _timer
    cdef double _handshake_began
    cdef bint _is_forgotten
    cdef public object _app_transport

    cdef bint _is_transport_closing(self) except -1
    @cython.locals(stream=StreamTransport)
    cdef object _hear_of_unsent(self)
    cdef object _wake_waiter(self, object error)
    cdef object _set_timer(self, object seconds, object callback)
    cdef object _cancel_timer(self)
    cdef object _continue_state(self)
    cdef object _handshake(self)
    @cython.locals(extra=dict)
    cdef object _handshake_done(self, object error)
    cdef object _handshake_failed(self, object error)
    cdef object _start_shutdown(self)
    cdef object _peer_finished(self)
    cdef object _flush(self)
    cdef object _send_close_notify(self)
    cdef object _await_close_notify(self)
    cdef object _shutdown_done(self)
    cdef object _call_eof_received(self)
    cdef object _forget(self)
    cdef object _force_transport(self, object error)
    cdef object _send_alert(self)
    cdef object _fatal_error(self, object error, str message=*)
    cdef object _report(self, object error, str message, object transport=*)


cdef object positive(str name, object seconds, object default)
cdef object default_context(object server_side, object server_hostname)
cdef object scratch_of(object loop)
