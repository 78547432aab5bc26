cimport cython

from whorl.aio.interop.stock cimport has_stock_future_chain
from whorl.core.loop.loop cimport Loop


cdef class ChainedFuture:
    cdef Loop _loop
    cdef object _future
    cdef readonly object _source


cpdef object wrap_future(object loop, object source)
@cython.locals(follower=ChainedFuture)
cpdef object chain_future(object loop, object future, object source)
