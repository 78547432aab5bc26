from whorl.aio.transports.byte_transport cimport as_bytes_like, joined
from whorl.aio.tls.engine cimport TLSEngine

cdef Py_ssize_t HIGH_WATER_WRITE, HIGH_WATER_READ


cdef class TLSStream:
    cdef readonly object _loop
    cdef readonly TLSEngine _ssl_protocol


cdef inline bint is_open(TLSStream transport) noexcept:
    return transport._ssl_protocol is not None and not transport._ssl_protocol._closing
