cimport cython
from cpython.ref cimport PyObject

from whorl.core.callback cimport Callback, call_with_one, new_callback
from whorl.core.loop.loop cimport Loop

cdef extern from *:
    """
    /* CPython's future, and three of its attributes without a look for them by name. */
    static PyTypeObject *whorl_future_type;
    static PyGetSetDef *whorl_future_state, *whorl_future_blocking, *whorl_future_callbacks;
    static PyObject *whorl_future_remove, *whorl_pending;

    static inline PyGetSetDef *whorl_accessors(PyObject *cls, const char *name) {
        PyObject *descriptor = PyObject_GetAttrString(cls, name);
        PyGetSetDef *found = NULL;
        if (descriptor != NULL && Py_IS_TYPE(descriptor, &PyGetSetDescr_Type))
            found = ((PyGetSetDescrObject *)descriptor)->d_getset;
        Py_XDECREF(descriptor);  /* The class keeps it, and is kept. */
        return found;
    }

    /* Whether this class of futures is written in C, as expected. It has one that is pending for an example. */
    static inline int whorl_learn_futures(PyObject *cls, PyObject *example) {
        if (!PyType_Check(cls))
            return 0;
        whorl_future_state = whorl_accessors(cls, "_state");
        whorl_future_blocking = whorl_accessors(cls, "_asyncio_future_blocking");
        whorl_future_callbacks = whorl_accessors(cls, "_callbacks");
        whorl_future_remove = PyObject_GetAttrString(cls, "remove_done_callback");
        whorl_pending = PyObject_GetAttrString(example, "_state");
        PyErr_Clear();
        if (whorl_future_state == NULL || whorl_future_state->get == NULL || whorl_future_blocking == NULL
            || whorl_future_blocking->set == NULL || whorl_future_callbacks == NULL
            || whorl_future_callbacks->get == NULL || whorl_future_remove == NULL || whorl_pending == NULL)
            return 0;
        whorl_future_type = (PyTypeObject *)Py_NewRef(cls);
        return 1;
    }

    static inline int whorl_is_future(PyObject *thing) {
        if (whorl_future_type != NULL && Py_IS_TYPE(thing, whorl_future_type))
            return 1;
        PyErr_SetString(PyExc_TypeError, "a wait was never initialized");
        return 0;
    }

    static inline int whorl_is_pending(PyObject *future) {
        PyObject *state;
        int answer;
        if (!whorl_is_future(future))
            return -1;
        state = whorl_future_state->get(future, whorl_future_state->closure);
        if (state == NULL)
            return -1;
        answer = state == whorl_pending ? 1 : PyObject_RichCompareBool(state, whorl_pending, Py_EQ);
        Py_DECREF(state);
        return answer;
    }

    /* What the first step of awaiting a future does. */
    static inline int whorl_block(PyObject *future) {
        if (!whorl_is_future(future))
            return -1;
        return whorl_future_blocking->set(future, Py_True, whorl_future_blocking->closure);
    }

    /* Take the callback out of a future that has just one: a tuple of it and its context. None if there is another
       number of them, or if it is not a method written in C, as those of tasks are. */
    static inline PyObject *whorl_taken_callback(PyObject *future) {
        PyObject *callbacks, *pair, *arguments[2], *removed;
        if (!whorl_is_future(future))
            return NULL;
        callbacks = whorl_future_callbacks->get(future, whorl_future_callbacks->closure);
        if (callbacks == NULL)
            return NULL;
        if (!PyList_CheckExact(callbacks) || PyList_GET_SIZE(callbacks) != 1)
            goto other;
        pair = PyList_GET_ITEM(callbacks, 0);
        if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2
            || !PyCFunction_CheckExact(PyTuple_GET_ITEM(pair, 0)) || !PyContext_CheckExact(PyTuple_GET_ITEM(pair, 1)))
            goto other;
        Py_INCREF(pair);
        Py_DECREF(callbacks);
        arguments[0] = future;
        arguments[1] = PyTuple_GET_ITEM(pair, 0);
        removed = PyObject_Vectorcall(whorl_future_remove, arguments, 2, NULL);
        if (removed == NULL) {
            Py_DECREF(pair);
            return NULL;
        }
        Py_DECREF(removed);
        return pair;
    other:
        Py_DECREF(callbacks);
        return Py_NewRef(Py_None);
    }

    /* Whether nobody but its one holder has this object, and no weak reference leads to it. */
    static inline int whorl_has_one_holder(PyObject *object) {
    #ifdef Py_GIL_DISABLED
        return 0;
    #else
        Py_ssize_t offset = Py_TYPE(object)->tp_weaklistoffset;
        return Py_REFCNT(object) == 1 && (offset <= 0 || *(PyObject **)((char *)object + offset) == NULL);
    #endif
    }

    static inline PyObject *whorl_bound_to(PyObject *callback) {
        PyObject *bound = PyCFunction_CheckExact(callback) ? PyCFunction_GET_SELF(callback) : NULL;
        return Py_NewRef(bound == NULL ? Py_None : bound);
    }
    """
    bint learn_futures "whorl_learn_futures"(object cls, object example) noexcept
    bint is_pending "whorl_is_pending"(object future) except -1
    int block "whorl_block"(object future) except -1
    object taken_callback "whorl_taken_callback"(object future)
    object bound_to "whorl_bound_to"(object callback)


cdef extern from *:
    bint has_one_holder "whorl_has_one_holder"(PyObject *thing) noexcept

cdef object Future
cdef tuple WOKEN
cdef object DONE
cdef bint TAKES_CANCEL_BACK
cdef bint AWAITED_BY
cdef object discard_awaiter


cdef class ReusableFuture:
    cdef Loop _runner
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
