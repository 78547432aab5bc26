cimport cython

from whorl.core.callback cimport Callback
from whorl.core.loop cimport Loop
from whorl.core.poller cimport IOHandle, Poller

cdef int OPEN
cdef int READABLE
cdef int WRITABLE
cdef int ERROR
cdef int HANGUP


cdef class DescriptorCallbacks(IOHandle):
    cdef public object fileobj
    cdef public Callback reader
    cdef public Callback writer
    cdef Loop _runner

    @cython.locals(reader=Callback, writer=Callback)
    cpdef object _on_events(self, int seen)
    cdef object _call(self, Callback callback)
    cdef object _watch(self, bint replaced)
