from whorl.aio.base_transports cimport flat
from whorl.aio.tls_layer cimport TLSLayer


cdef class TLSStream:
    cdef readonly object _loop
    cdef readonly TLSLayer _ssl_protocol
