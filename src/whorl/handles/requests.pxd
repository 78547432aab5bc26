cimport cython
from libc.stdint cimport int64_t

from whorl.core cimport limits
from whorl.core.callback cimport call_with_two, current_context, has_single_reference
from whorl.core.handle cimport Handle, Request


cdef class StreamRequest(Request):
    cdef readonly Handle handle
    cdef object _callback
    cdef object _context
    cdef int _code
    cdef StreamRequest _next

    cdef object _set_up(self, Handle handle, object callback)
    cdef object _finish(self, int code)


cdef class Write(StreamRequest):
    cdef int64_t _target


cdef class Connect(StreamRequest):
    pass


cdef class Shutdown(StreamRequest):
    pass


cdef class RequestQueue:
    cdef StreamRequest _first
    cdef StreamRequest _last
    cdef Py_ssize_t _size

    cdef object push(self, StreamRequest request)
    cdef object push_completed(self, StreamRequest request, int code)
    @cython.locals(request=StreamRequest)
    cdef StreamRequest pop(self)


cdef StreamRequest _freelist
cdef Py_ssize_t _freelist_size


@cython.locals(first=StreamRequest, request=Write)
cpdef Write new_write(Handle handle, object callback)
cpdef object recycle_write(StreamRequest request)
cpdef object contiguous(object data)
