cimport cython

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

    /* PyObject_Vectorcall, without its look at the result where that is Python's own and always as it should be. */
    static inline PyObject *whorl_call(PyObject *callback, PyObject *const *arguments, size_t count) {
        if (Py_IS_TYPE(callback, &PyFunction_Type))
            return ((PyFunctionObject *)callback)->vectorcall(callback, arguments, count, NULL);
        if (Py_IS_TYPE(callback, &PyMethod_Type))
            return ((PyMethodObject *)callback)->vectorcall(callback, arguments, count, NULL);
        return PyObject_Vectorcall(callback, arguments, count, NULL);
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
        result = whorl_call(callback, ((PyTupleObject *)args)->ob_item, PyTuple_GET_SIZE(args));
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
    /* Have the memory of an entry, if there is one at that place, brought into the processor's cache meanwhile.
       GCC leaves out calls of a function that does nothing else, unless there are none any more. */
    #if defined(__GNUC__)
    __attribute__((always_inline))
    #endif
    static inline void whorl_fetch(PyObject *entries, Py_ssize_t place) {
    #if defined(__GNUC__)
        if (entries != Py_None && place < PyList_GET_SIZE(entries)) {
            uintptr_t entry = (uintptr_t)PyList_GET_ITEM(entries, place);
            __builtin_prefetch((void *)(entry - 16), 1);  /* where the collector's links are */
            __builtin_prefetch((void *)(entry + 48), 1);
            __builtin_prefetch((void *)(entry + 112), 1);
        }
    #endif
    }
    """
    void fetch "whorl_fetch"(list entries, Py_ssize_t place) noexcept


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
    bint has_single_reference "whorl_is_unshared"(object thing)


cdef extern from *:
    """
    static PyObject *whorl_spare_context;

    static inline int whorl_holds_nothing(PyObject *context) {
        return PyContext_Type.tp_as_mapping->mp_length(context) == 0;
    }

    /* A new context, or one that cannot be told from it. The collector does not see it before `whorl_settle_context`,
       and so shows a kept one to nobody. */
    static inline PyObject *whorl_empty_context(void) {
        PyObject *context = whorl_spare_context;
        whorl_spare_context = NULL;
    #ifndef Py_GIL_DISABLED
        if (context == NULL && (context = PyContext_New()) != NULL)
            PyObject_GC_UnTrack(context);
        return context;
    #else
        return PyContext_New();
    #endif
    }

    /* Keep a context in which something ran, if it holds nothing and nobody refers to it but the caller and the
       callback; whether it is kept. */
    static inline int whorl_settle_context(PyObject *context, int is_callbacks) {
    #ifdef Py_GIL_DISABLED
        return 0;
    #else
        Py_ssize_t offset = Py_TYPE(context)->tp_weaklistoffset;
        if (!is_callbacks || Py_REFCNT(context) != 2 || whorl_spare_context != NULL
            || (offset > 0 && *(PyObject **)((char *)context + offset) != NULL) || !whorl_holds_nothing(context)) {
            if (!PyObject_GC_IsTracked(context))
                PyObject_GC_Track(context);
            return 0;
        }
        whorl_spare_context = Py_NewRef(context);
        return 1;
    #endif
    }
    """


cdef extern from *:
    """
    /* Whether the context of the calling code holds nothing. */
    static inline int whorl_context_is_empty(void) {
        PyObject *context = PyThreadState_Get()->context;
        return context == NULL || whorl_holds_nothing(context);
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


cdef class AbstractLoop:
    cdef public bint _debug

    cdef object _set_up_abstract(self)
    cdef object _timer_cancelled(self, Runnable timer)
    cdef object _count_active(self, Py_ssize_t change)
    cdef object _count_requests(self, Py_ssize_t change)
    cdef object _handle_opened(self, Runnable handle)
    cdef object _handle_closing(self, Runnable handle)
    cdef object _handle_closed(self, Runnable handle)
    cdef object _queue_pending(self, Runnable entry)
    cdef object _unqueue_pending(self, Runnable entry)
    cpdef object _check_closed(self)
    cpdef object _shown_class(self, object cls)
    cpdef object _describe(self, Callback callback)


cdef class Callback(Runnable):
    cdef public AbstractLoop _loop
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
    cdef object _end_lock(self)


cdef extern from *:
    """
    /* A reference to None for where there was none: nobody counts those since 3.12. */
    #if PY_VERSION_HEX >= 0x030C0000
    #define WHORL_NONE Py_None
    #define WHORL_DROP_NONE()
    #else
    #define WHORL_NONE Py_NewRef(Py_None)
    #define WHORL_DROP_NONE() Py_DECREF(Py_None)
    #endif

    /* Callbacks that have run and that nobody knew of: plain ones, and guarded ones. */
    typedef struct {
        PyObject **entries;
        Py_ssize_t count, room;
    } whorl_pile;

    static whorl_pile whorl_piles[2];

    static inline void whorl_make_room(Py_ssize_t room) {
        int index;
        for (index = 0; index < 2; index++) {
            whorl_piles[index].entries = (PyObject **)PyMem_RawMalloc(room * sizeof(PyObject *));
            whorl_piles[index].room = whorl_piles[index].entries != NULL ? room : 0;
        }
    }

    static inline int whorl_lay_aside(PyObject *callback, int guarded) {
        whorl_pile *pile = whorl_piles + (guarded != 0);
        if (pile->count >= pile->room)
            return 0;
        pile->entries[pile->count++] = Py_NewRef(callback);
        return 1;
    }

    static inline void *whorl_take_up(int guarded) {
        whorl_pile *pile = whorl_piles + (guarded != 0);
        PyObject *entry;
        if (pile->count == 0)
            return WHORL_NONE;
        entry = pile->entries[--pile->count];
        if (whorl_is_unshared(entry))
            return entry;
        Py_DECREF(entry); /* Somebody has found it where the collector shows it. */
        return WHORL_NONE;
    }

    /* Fill in a callback all of whose places hold None. */
    #define WHORL_FILL(entry, owner, called, arguments, context) do { \\
            Py_INCREF(owner); \\
            Py_INCREF(called); \\
            Py_INCREF(arguments); \\
            Py_INCREF(context); \\
            WHORL_DROP_NONE(); \\
            WHORL_DROP_NONE(); \\
            WHORL_DROP_NONE(); \\
            WHORL_DROP_NONE(); \\
            (entry)->_loop = (owner); \\
            (entry)->_callback = (called); \\
            (entry)->_args = (arguments); \\
            (entry)->_snapshot = (context); \\
        } while (0)

    /* Drop all that a callback refers to. */
    #define WHORL_FORGET(entry) do { \\
            PyObject *owner = (PyObject *)(entry)->_loop, *called = (entry)->_callback; \\
            PyObject *arguments = (entry)->_args, *context = (entry)->_snapshot; \\
            (entry)->_loop = (void *)WHORL_NONE; \\
            (entry)->_callback = WHORL_NONE; \\
            (entry)->_args = WHORL_NONE; \\
            (entry)->_snapshot = WHORL_NONE; \\
            Py_DECREF(owner); \\
            Py_DECREF(called); \\
            Py_DECREF(arguments); \\
            Py_DECREF(context); \\
        } while (0)

    /* A callback's context is None while it is an empty one that is not made yet, and again afterwards where that one
       can serve others. Returns whether nothing was raised; else the error is set. */
    #if defined(__GNUC__)
    __attribute__((always_inline))
    #endif
    static inline int whorl_run_with(PyObject *callback, PyObject *args, PyObject **place) {
        PyObject *context = *place, *result;
        int is_new = context == Py_None;
        if (is_new) {
            context = whorl_empty_context();
            if (context == NULL)
                return 0;
            *place = context;
            WHORL_DROP_NONE();
        }
        Py_INCREF(context);
        Py_INCREF(callback);
        Py_INCREF(args);
        result = whorl_run_in_context(context, callback, args);
        Py_DECREF(args);
        Py_DECREF(callback);
        if (is_new && whorl_settle_context(context, *place == context)) {
            *place = WHORL_NONE;
            Py_DECREF(context);
        }
        Py_DECREF(context);
        Py_XDECREF(result);
        return result != NULL;
    }
    #define WHORL_RUN(entry) whorl_run_with((entry)->_callback, (entry)->_args, &(entry)->_snapshot)

    /* For where an error is set already. */
    static inline PyObject *whorl_still_raised(void) {
        return NULL;
    }
    """
    void set_freelist_size "whorl_make_room"(Py_ssize_t room) noexcept
    bint freelist_put "whorl_lay_aside"(object callback, bint guarded) noexcept
    Callback freelist_pop "whorl_take_up"(bint guarded)
    GuardedCallback freelist_pop_guarded "whorl_take_up"(bint guarded)
    void fill_in "WHORL_FILL"(Callback entry, AbstractLoop loop, object callback, tuple args, object context) noexcept
    void forget "WHORL_FORGET"(Callback callback) noexcept
    bint has_run "WHORL_RUN"(Callback callback) noexcept
    object reraise_pending "whorl_still_raised"()


cdef bint run_catching(Callback entry, bint guarded) noexcept
cdef object recycle_guarded(GuardedCallback entry)


@cython.locals(entry=Callback, snapshot=object)
cpdef Callback new_callback(AbstractLoop loop, object callback, tuple args, object context)


@cython.locals(entry=GuardedCallback, snapshot=object)
cpdef GuardedCallback new_guarded_callback(AbstractLoop loop, object callback, tuple args, object context)


cpdef object call_in_context(object context, object callback, tuple args)
cpdef object current_context()
cpdef object current_thread()
