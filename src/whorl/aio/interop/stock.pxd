cimport cython

from cpython.object cimport PyObject

from whorl.aio.interop.class_snapshot cimport ClassSnapshot

cdef extern from "Python.h":
    bint PyMethod_Check(object thing) noexcept
    PyObject *PyMethod_GET_FUNCTION(object method)
    object bound_method "PyMethod_New"(object function, object owner)


cdef inline bint is_method_of(object method, object function) noexcept:
    return PyMethod_Check(method) and PyMethod_GET_FUNCTION(method) == <PyObject *>function


cdef object _Reader
cdef object _Protocol
cdef object _Writer
cdef object _Executor
cdef object _Socket
cdef object _chain
cdef object _run_in_executor
cdef ClassSnapshot _METHODS_OF_STREAMS
cdef ClassSnapshot _CONSTRUCTORS_OF_STREAMS
cdef ClassSnapshot _METHODS_OF_EXECUTOR
cdef ClassSnapshot _METHODS_OF_SOCKETS
cdef dict _CONNECTION_METHODS_OF_LOOPS
cdef dict _LAST_SUBCLASS
cdef tuple _FACTORIES_OF_CLIENTS
cdef dict _NAMES_OF_STREAMS
cdef dict _NAMES_OF_SOCKETS
cdef object _COROUTINES
cdef object _CONNECTION_MADE
cdef object _EOF_RECEIVED
cdef object _OWN_CONNECTION_MADE
cdef bint _KNOWS_READERS, _KNOWS_WRITERS


cpdef bint has_stock_stream_methods() except -1
cpdef bint has_stock_stream_constructors() except -1
cpdef bint has_stock_writer_attributes() except -1
cpdef bint has_stock_reader_attributes() except -1
cpdef object connection_made_of(object protocol)
cpdef bint has_stock_end_of_data(object protocol) except -1
cpdef bint is_stock_client_factory(object factory) except -1
cpdef bint has_stock_executor_methods() except -1
cpdef bint has_stock_future_chain() except -1
cpdef bint is_stock_executor(object executor) except -1
cpdef bint has_stock_run_in_executor(object loop) except -1
cpdef bint has_stock_sockets() except -1
cpdef bint is_stock_socket(object sock) except -1
@cython.locals(methods=ClassSnapshot)
cpdef bint has_stock_connection_methods(object kind) except -1
cdef ClassSnapshot _methods_of_subclass(object kind)
