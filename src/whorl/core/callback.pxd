cimport cython
from libc.stdint cimport int64_t

cdef extern from *:
    """
    /* CPython 3.12 and 3.13 count references up in 32 bits and down in 64. A decrement soon after an increment
       then waits until all earlier stores have reached the cache. Counting up in 64 bits, it need not. */
    #if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030E0000 && SIZEOF_VOID_P > 4 \\
        && !defined(Py_GIL_DISABLED) && !defined(Py_REF_DEBUG) && !defined(Py_LIMITED_API)
    static inline void whorl_incref(PyObject *object) {
        PY_UINT32_T count = object->ob_refcnt_split[PY_BIG_ENDIAN];
        if ((int32_t)count >= 0)
            object->ob_refcnt = (Py_ssize_t)count + 1;
    }
    static inline PyObject *whorl_new_reference(PyObject *object) {
        whorl_incref(object);
        return object;
    }
    #undef Py_INCREF
    #undef Py_NewRef
    #define Py_INCREF(object) whorl_incref(_PyObject_CAST(object))
    #define Py_NewRef(object) whorl_new_reference(_PyObject_CAST(object))
    #endif
    """


cdef extern from "Python.h":
    object PyContext_CopyCurrent()
    unsigned long PyThread_get_thread_ident()


cdef extern from *:
    """
    /* For what is no Context, and may have a method of this name all the same. */
    static inline PyObject *whorl_run_by_method(PyObject *context, PyObject *callback, PyObject *args) {
        PyObject *run = PyObject_GetAttrString(context, "run"), *first, *all = NULL, *result = NULL;
        if (run == NULL)
            return NULL;
        first = PyTuple_Pack(1, callback);
        if (first != NULL)
            all = PySequence_Concat(first, args);
        if (all != NULL)
            result = PyObject_Call(run, all, NULL);
        Py_XDECREF(all);
        Py_XDECREF(first);
        Py_DECREF(run);
        return result;
    }

    /* What Context.run does, with the arguments taken straight from the tuple. */
    static inline PyObject *whorl_run_in_context(PyObject *context, PyObject *callback, PyObject *args) {
        PyObject *result;
        if (!PyTuple_Check(args)) {
            PyErr_SetString(PyExc_TypeError, "the arguments of a callback are a tuple");
            return NULL;
        }
        if (PyContext_Enter(context) < 0) {
            if (PyContext_CheckExact(context))
                return NULL;
            PyErr_Clear();
            return whorl_run_by_method(context, callback, args);
        }
        result = PyObject_Vectorcall(callback, ((PyTupleObject *)args)->ob_item, PyTuple_GET_SIZE(args), NULL);
        if (PyContext_Exit(context) < 0) {
            Py_XDECREF(result);
            return NULL;
        }
        return result;
    }
    """
    object run_in_context "whorl_run_in_context"(object context, object callback, tuple args)


cdef extern from *:
    """
    /* The same with one argument. */
    static inline PyObject *whorl_call_in_context(PyObject *context, PyObject *callback, PyObject *argument) {
        PyObject *result;
        if (PyContext_Enter(context) < 0)
            return NULL;
        result = PyObject_CallOneArg(callback, argument);
        if (PyContext_Exit(context) < 0) {
            Py_XDECREF(result);
            return NULL;
        }
        return result;
    }
    """
    object call_with_one "whorl_call_in_context"(object context, object callback, object argument)


cdef extern from *:
    """
    /* The same with two and three: with a place before them, where a method puts its object. */
    static inline PyObject *whorl_call_with_two(PyObject *context, PyObject *callback, PyObject *one, PyObject *two) {
        PyObject *arguments[3] = {NULL, one, two}, *result;
        if (PyContext_Enter(context) < 0)
            return NULL;
        result = PyObject_Vectorcall(callback, arguments + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
        if (PyContext_Exit(context) < 0) {
            Py_XDECREF(result);
            return NULL;
        }
        return result;
    }

    static inline PyObject *whorl_call_with_three(PyObject *context, PyObject *callback, PyObject *one, PyObject *two,
                                                  PyObject *three) {
        PyObject *arguments[4] = {NULL, one, two, three}, *result;
        if (PyContext_Enter(context) < 0)
            return NULL;
        result = PyObject_Vectorcall(callback, arguments + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
        if (PyContext_Exit(context) < 0) {
            Py_XDECREF(result);
            return NULL;
        }
        return result;
    }
    """
    object call_with_two "whorl_call_with_two"(object context, object callback, object one, object two)
    object call_with_three "whorl_call_with_three"(object context, object callback, object one, object two, object three)


cdef extern from *:
    """
    /* Whether only the caller's own reference to an object is left: no other one, and no weak one. */
    static inline int whorl_is_unshared(PyObject *object) {
    #ifdef Py_GIL_DISABLED
        return 0;
    #else
        Py_ssize_t offset = Py_TYPE(object)->tp_weaklistoffset;
        return Py_REFCNT(object) == 1 && (offset <= 0 || *(PyObject **)((char *)object + offset) == NULL);
    #endif
    }
    """
    bint is_unshared "whorl_is_unshared"(object thing)


cdef extern from *:
    """
    static PyObject *whorl_spare_context;

    /* A new context, or one that cannot be told from it. */
    static inline PyObject *whorl_empty_context(void) {
        PyObject *context = whorl_spare_context;
        whorl_spare_context = NULL;
        return context != NULL ? context : PyContext_New();
    }

    /* Keep a context in which something ran, if it holds nothing and nobody refers to it but the caller and the
       callback; whether it is kept. */
    static inline int whorl_keep_context(PyObject *context) {
    #ifdef Py_GIL_DISABLED
        return 0;
    #else
        Py_ssize_t offset = Py_TYPE(context)->tp_weaklistoffset;
        if (Py_REFCNT(context) != 2 || whorl_spare_context != NULL || !PyContext_CheckExact(context)
            || (offset > 0 && *(PyObject **)((char *)context + offset) != NULL) || PyObject_Size(context) != 0)
            return 0;
        whorl_spare_context = Py_NewRef(context);
        return 1;
    #endif
    }
    """
    object empty_context "whorl_empty_context"()
    bint is_kept "whorl_keep_context"(object context) noexcept


cdef Callback _spare
cdef Py_ssize_t _spares
cdef GuardedCallback _guarded_spare
cdef Py_ssize_t _guarded_spares
cdef Py_ssize_t SPARE_CALLBACKS


cdef extern from *:
    """
    /* Whether the context of the calling code holds nothing. */
    static inline int whorl_context_is_empty(void) {
        PyObject *context = PyThreadState_Get()->context;
        return context == NULL || PyObject_Size(context) == 0;
    }
    """
    bint context_is_empty "whorl_context_is_empty"() noexcept
    object new_context "PyContext_New"()


cdef inline object snapshot_context():
    # None is an empty context: what is to run in it gets one of its own when it runs. Of those that would wait
    # meanwhile CPython keeps no more than 255 for the next ones, and the collector looks at each.
    return None if context_is_empty() else PyContext_CopyCurrent()


cdef inline object copy_context():
    return PyContext_CopyCurrent()


cdef inline object get_ident():
    return PyThread_get_thread_ident()


cdef inline unsigned long thread_ident() noexcept:
    return PyThread_get_thread_ident()


cdef extern from *:
    # One byte where `bint` takes four: for attributes of what there are many of.
    ctypedef bint flag "_Bool"


cdef class Runnable:
    cdef object _execute(self)


cdef class Owner:
    cdef public bint _debug
    cdef int64_t _call

    cdef object _set_up_owner(self)
    cdef object _timer_cancelled(self, Runnable timer)
    cdef object _count_active(self, Py_ssize_t change)
    cdef object _count_requests(self, Py_ssize_t change)
    cdef object _handle_opened(self, Runnable handle)
    cdef object _handle_closing(self, Runnable handle)
    cdef object _handle_closed(self, Runnable handle)
    cdef object _feed(self, Runnable entry)
    cdef object _unfeed(self, Runnable entry)
    cdef bint _hold(self, Runnable handle) except -1
    cpdef object _check_closed(self)
    cpdef object _shown_class(self, object cls)
    cpdef object _describe(self, Callback callback)


cdef class Callback(Runnable):
    cdef public Owner _loop
    cdef public object _callback
    cdef public tuple _args
    cdef object _snapshot
    cdef public bint _cancelled
    cdef public object _source_traceback
    cdef object _repr
    cdef object __weakref__

    cdef object _execute(self)
    cdef object _mark_cancelled(self)
    @cython.locals(loop=object)
    cpdef object _run(self)


cdef class GuardedCallback(Callback):
    cdef unsigned long _runner
    cdef object _ended

    @cython.locals(outer="unsigned long")
    cdef object _execute(self)
    cdef object _await_end(self)


cdef object _forget(Callback callback)
@cython.locals(callback=Callback)
cpdef object recycle(Runnable entry)


@cython.locals(callback=GuardedCallback)
cpdef object recycle_guarded(Runnable entry)


@cython.locals(entry=Callback)
cpdef Callback new_callback(Owner loop, object callback, tuple args, object context)


@cython.locals(entry=GuardedCallback)
cpdef GuardedCallback new_guarded_callback(Owner loop, object callback, tuple args, object context)


cpdef object call_in_context(object context, object callback, tuple args)
cpdef object current_context()
cpdef object current_thread()
