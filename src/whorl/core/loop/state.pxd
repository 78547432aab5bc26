from libc.stdint cimport int64_t

from whorl.core.callback cimport AbstractLoop, Callback, Runnable, current_thread
from whorl.core.kernel.kernel cimport Kernel


cdef class LoopState(AbstractLoop):
    cdef readonly Kernel _kernel
    cdef readonly object _host
    cdef object _probe
    cdef public bint _stopping
    cdef public bint _closed
    cdef public object _thread_id
    cdef object __weakref__

    cdef object _set_up(self, object kernel, object host)
    cpdef object _check_closed(self)
    cpdef object _check_thread(self)

    # What faces replace.
    cpdef object _clock_was_patched(self)
    cpdef object _callback_failed(self, Runnable entry, object error)
    cpdef object _callback_ran(self, Runnable entry, int64_t took_ns)
    cpdef object _signal_arrived(self, int number)
    cpdef object _check_callback(self, object callback, str method)
    cpdef object _note_origin(self, Callback callback)
