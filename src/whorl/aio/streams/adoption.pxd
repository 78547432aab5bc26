cimport cython

from whorl.aio.interop.stock cimport connection_made_of, has_stock_reader_attributes, has_stock_stream_methods
from whorl.aio.streams.feed cimport StreamFeed
from whorl.core.loop.loop cimport Loop

cdef object _Reader
cdef object _Protocol
cdef object StreamReader


@cython.locals(received=StreamFeed, adopted=StreamFeed, state=dict)
cpdef StreamFeed attach_feed(object protocol)
@cython.locals(received=StreamFeed, loop=Loop)
cpdef object attach_new_feed(object protocol)
cpdef object adopted_connection_made(object protocol)
