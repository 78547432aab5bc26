from libc.stdint cimport int64_t

from whorl.core.callback cimport call_in_context, current_context
from whorl.core.handle cimport Handle


cdef class LoopWatcher(Handle):
    cdef object _callback
    cdef tuple _args
    cdef readonly object _context
    cdef readonly int64_t _started_in

    cdef list _phase(self)
    cdef object _execute(self)
    cpdef object _release(self)


cdef class Idle(LoopWatcher):
    cdef list _phase(self)


cdef class Prepare(LoopWatcher):
    cdef list _phase(self)


cdef class Check(LoopWatcher):
    cdef list _phase(self)
