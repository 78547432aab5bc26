cimport cython
from cpython.ref cimport PyObject

from whorl.core.callback cimport Callback, call_with_one, new_callback
from whorl.core.loop.loop cimport Loop

cdef extern from "whorl/aio/interop/reusable_future.h":
    bint learn_futures "whorl_learn_futures"(object cls, object example) noexcept
    bint is_pending "whorl_is_pending"(object future) except -1
    int block "whorl_block"(object future) except -1
    object taken_callback "whorl_taken_callback"(object future)
    object bound_to "whorl_bound_to"(object callback)

cdef extern from "whorl/core/references.h":
    bint has_one_holder "whorl_has_single_reference"(PyObject *thing) noexcept

cdef object Future
cdef tuple WOKEN
cdef object DONE
cdef bint TAKES_CANCEL_BACK
cdef bint AWAITED_BY
cdef object discard_awaiter


cdef class ReusableFuture:
    cdef Loop _event_loop
    cdef object _future
    cdef bint _done
    cdef bint _is_awaited
    cdef object _error

    cdef object _reset(self)
    cdef object _look_at_future(self)
    cdef bint _is_wanted(self) except -1
    cdef object _finish(self)
    cdef tuple _take_callback(self)
    @cython.locals(taken=tuple)
    cdef object _wake_soon(self)
    @cython.locals(taken=tuple)
    cdef bint _is_stepped_now(self) except -1
    cdef Callback _first_call(self)


cdef inline bint has_one_other_reference(ReusableFuture wait) noexcept:
    return has_one_holder(<PyObject *>wait._future)
