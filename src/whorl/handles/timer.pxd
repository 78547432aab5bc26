cimport cython

from whorl.core.callback cimport current_context
from whorl.core.handle cimport Handle
from whorl.core.loop cimport Loop
from whorl.core.timer cimport TimedCallback, new_handle_timer


cdef class Timer(Handle):
    cdef object _callback
    cdef object _context
    cdef TimedCallback _entry
    cdef object _repeat_ns

    @cython.locals(loop=Loop, entry=TimedCallback)
    cdef object _arm(self, object timeout_ns)
    cpdef object _release(self)
