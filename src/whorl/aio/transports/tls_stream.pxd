from whorl.aio.transports.byte_transport cimport as_bytes_like
from whorl.aio.tls.engine cimport TLSEngine


cdef class TLSStream:
    cdef readonly object _loop
    cdef readonly TLSEngine _ssl_protocol
