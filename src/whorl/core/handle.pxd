cimport cython

from whorl.core cimport states
from whorl.core.callback cimport AbstractLoop, Runnable, flag
from whorl.core.threads cimport shared_byte


# With the trashcan, a long chain of these by `data` is freed without recursion.
@cython.trashcan(True)
cdef class Handle(Runnable):
    cdef readonly AbstractLoop _loop
    cdef public object data
    cdef object _close_callback
    cdef object __weakref__
    cdef readonly shared_byte _handle_state  # `Async.send` asks; the loop asks again before the call
    cdef readonly flag _active
    cdef readonly flag _referenced
    cdef flag _listed

    cdef object _set_up(self, AbstractLoop loop)
    cdef object _push(self)
    cdef object _learn_pieces(self)
    cdef object _begin_close(self)
    cdef object _release_now(self)
    cpdef object _release(self)
    cdef object _drop_loop_reference(self)
    cdef object _check_open(self)
    cpdef object _activate(self)
    cpdef object _deactivate(self)
    cdef object _finish_close(self)


@cython.trashcan(True)
cdef class Request:
    cdef readonly AbstractLoop _loop
    cdef public object data
    cdef readonly bint _pending
    cdef object __weakref__

    cpdef object _begin(self)
    cpdef object _end(self)


cdef class Completion(Runnable):
    cdef object _callback
    cdef tuple _args
    cdef object _abandon

    cdef object _execute(self)


cdef class LateCompletion(Completion):
    pass
