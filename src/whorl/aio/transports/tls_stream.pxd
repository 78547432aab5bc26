from whorl.aio.transports.byte_transport cimport flat
from whorl.aio.tls.engine cimport TLSLayer


cdef class TLSStream:
    cdef readonly object _loop
    cdef readonly TLSLayer _ssl_protocol
