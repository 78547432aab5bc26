from cpython.object cimport PyObject

from whorl.core.callback cimport Callback, Runnable

cdef extern from "whorl/core/recording/tasks.h":
    bint learn_step "whorl_learn_step"(object step, object task) noexcept
    void learn_method "whorl_learn_method"(object function) noexcept
    object ask "whorl_ask"(object descriptor, object task)
    object ask_at "whorl_ask"(PyObject *descriptor, object task)
    bint may_step "whorl_may_step"(object called) noexcept
    object find_stepped "whorl_stepped_by"(object called)
    object find_stepped_at "whorl_stepped_by"(PyObject *called)

cdef dict _kinds

# Only this module has what it has learned, so others call it.
cdef object stepped_by(object called)
cdef object stepped_by_entry(Callback entry)
cdef TaskKind kind_for(object cls)


cdef class TaskKind:
    cdef object name_of
    cdef object coro_of
    cdef object state_of
    cdef object failure_of


cdef inline object find_stepped_by(Callback entry):
    return find_stepped_at(<PyObject *>entry._callback)


cdef inline bint may_be_step(Runnable entry) noexcept:
    if type(entry) is Callback:
        return may_step((<Callback>entry)._callback)
    return True
