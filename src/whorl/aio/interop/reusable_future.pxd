cimport cython
from cpython.object cimport PyObject, PyTypeObject
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE

from whorl.core.callback cimport Callback, call_with_one, new_callback
from whorl.core.loop.loop cimport Loop
from whorl.core.threads cimport HAS_GIL

cdef extern from "Python.h":
    ctypedef struct PyGetSetDef:
        object (*get)(object, void *)
        int (*set)(object, object, void *) except -1
        void *closure
    ctypedef struct PyGetSetDescrObject:
        PyGetSetDef *d_getset
    PyTypeObject PyGetSetDescr_Type
    bint Py_IS_TYPE(object thing, PyTypeObject *kind)
    bint PyCFunction_CheckExact(PyObject *thing)
    PyObject *PyCFunction_GET_SELF(object method)
    bint PyContext_CheckExact(PyObject *thing)

cdef extern from "whorl/aio/interop/reusable_future.h":
    object future_of "whorl_future_of"(object cls, tuple none)

cdef extern from "whorl/core/references.h":
    bint has_one_holder "whorl_has_single_reference"(PyObject *thing) noexcept

cdef object Future
cdef object _running_loop
cdef tuple NO_ARGUMENTS
cdef object PENDING
cdef object remove_callback
cdef PyGetSetDef *STATE
cdef PyGetSetDef *BLOCKING
cdef PyGetSetDef *CALLBACKS
cdef tuple WOKEN
cdef bint TAKES_CANCEL_BACK, AWAITED_BY
cdef object discard_awaiter


cdef class ReusableFuture:
    cdef Loop _event_loop
    cdef object _future
    cdef bint _done
    cdef bint _is_awaited
    cdef object _error
    cdef tuple _woken

    cdef object _set_up(self, Loop loop)
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


cdef inline object new_future(Loop loop):
    if _running_loop is not None and _running_loop() is loop:
        return future_of(Future, NO_ARGUMENTS)
    return Future(loop=loop)


cdef inline bint has_one_other_reference(ReusableFuture wait) noexcept:
    return has_one_holder(<PyObject *>wait._future)


# Python finds a future's attributes, and the methods that would do, only by their names.


cdef inline PyGetSetDef *functions_behind(str name) except NULL:
    # The class keeps them, and is kept.
    descriptor = getattr(Future, name, None)
    if not Py_IS_TYPE(descriptor, &PyGetSetDescr_Type):
        raise ImportError("asyncio.Future is not the class written in C that it is in CPython")
    return (<PyGetSetDescrObject *>descriptor).d_getset


cdef inline int check_future(object future) except -1:
    # The C functions trust their caller.
    if type(future) is not Future:
        raise TypeError("a wait was never initialized")
    return 0


cdef inline bint is_pending(object future) except -1:
    check_future(future)
    state = STATE.get(future, STATE.closure)
    return state is PENDING or state == PENDING


cdef inline int block(object future) except -1:
    # Do the first step of awaiting a future.
    check_future(future)
    return BLOCKING.set(future, True, BLOCKING.closure)


cdef inline tuple taken_callback(object future):
    # Take the callback out of a future that has just one, with its context; None if it is no method written in C.
    cdef tuple pair
    check_future(future)
    callbacks = CALLBACKS.get(future, CALLBACKS.closure)
    if type(callbacks) is not list or PyList_GET_SIZE(callbacks) != 1:
        return None
    if not PyTuple_CheckExact(<object>PyList_GET_ITEM(callbacks, 0)):
        return None
    pair = <tuple>PyList_GET_ITEM(callbacks, 0)
    if (
        PyTuple_GET_SIZE(pair) != 2
        or not PyCFunction_CheckExact(PyTuple_GET_ITEM(pair, 0))
        or not PyContext_CheckExact(PyTuple_GET_ITEM(pair, 1))
    ):
        return None
    remove_callback(future, <object>PyTuple_GET_ITEM(pair, 0))
    return pair


cdef inline object bound_to(object callback):
    cdef PyObject *bound = PyCFunction_GET_SELF(callback)
    return <object>bound if bound != NULL else None
