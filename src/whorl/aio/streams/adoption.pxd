cimport cython
from cpython.object cimport PyObject, PyTypeObject

from whorl.aio.interop.stock cimport (
    connection_made_of, has_stock_end_of_data, has_stock_reader_attributes, has_stock_stream_methods
)
from whorl.aio.streams.feed cimport StreamFeed, attributes_of, new_feed
from whorl.core.loop.loop cimport Loop

cdef extern from "Python.h":
    object weak_reference_to "PyWeakref_NewRef"(object thing, PyObject *callback)

cdef object _Reader
cdef object _Protocol
cdef object StreamReader
cdef tuple NO_ARGUMENTS


cdef inline object weak_reference(object thing):
    return weak_reference_to(thing, NULL)


cdef inline object new_object(object cls):
    # Python looks for a `__new__` that is written in Python.
    return (<PyTypeObject *>cls).tp_new(<type>cls, <PyObject *>NO_ARGUMENTS, NULL)


cdef object _reader_of(object protocol)
@cython.locals(received=StreamFeed, adopted=StreamFeed, state=dict)
cpdef StreamFeed attach_feed(object protocol)
@cython.locals(received=StreamFeed, loop=Loop)
cpdef object attach_new_feed(object protocol)
@cython.locals(received=StreamFeed)
cpdef object new_reader(Loop loop, object limit)
cpdef object adopted_connection_made(object protocol)
@cython.locals(known=dict)
cpdef bint end_arrived(object protocol, StreamFeed feed) except -1
