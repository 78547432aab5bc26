cimport cython
from libc.stdint cimport int64_t

from whorl.core.callback cimport Callback, new_callback, new_guarded_callback
from whorl.core.kernel.kernel cimport clock_is_patched
from whorl.core.lists cimport append
from whorl.core.loop.lifecycle cimport LoopLifecycle
from whorl.core.timers.timed_callback cimport TimedCallback, new_timer, new_timer_after
from whorl.core.timers.heap cimport TimerHeap

cdef int DEFAULT
cdef int ONCE
cdef int PENDING_ROUNDS
cdef int EMPTY_POLLS_BEFORE_SKIP
cdef int WOKEN_BY_THREAD
cdef int TURNS_WITHOUT_POLL
cdef int64_t LONGEST_WITHOUT_POLL_NS


cdef class Loop(LoopLifecycle):
    cdef int64_t _polled_at
    cdef int _skipped
    cdef bint _is_driven
    cdef bint _is_turning

    cdef object _set_up_loop(self, object poller, object kernel, object host)
    cdef object _call_soon_with(self, object callback, tuple args, object context)
    cdef object _call_at_with(self, object when, object callback, tuple args, object context)
    cdef object _call_later_with(self, object delay, object callback, tuple args, object context)
    cdef object _post_with(self, object callback, tuple args, object context)
    @cython.locals(can_sleep=bint, may_sleep=bint, _=int)
    cdef object _machine_turn(self, int mode)
    cdef int64_t _machine_timeout(self) except -2
    cpdef object _run_turns(self)
    cdef object _turn(self)
    @cython.locals(before=int64_t, slept=int64_t, found=Py_ssize_t, _=Py_ssize_t)
    cdef object _poll(self, int64_t timeout_ns, list into)
    @cython.locals(since=int64_t, timers=TimerHeap)
    cdef bint _skip_poll(self) except -1
    cdef int64_t _turn_timeout(self) except -2
    cdef bint _alive(self) except -1


cdef inline object call_soon_of(object loop, object when, object callback, tuple args, object context):
    cdef Callback entry
    if (<Loop>loop)._closed or (<Loop>loop)._debug or (<Loop>loop)._posted:
        return (<Loop>loop)._call_soon_with(callback, args, context)
    if (<Loop>loop)._ready_queue is None:
        raise AttributeError("the loop is not initialized")
    entry = new_callback(<Loop>loop, callback, args, context)
    append((<Loop>loop)._ready_queue, entry)
    return entry


cdef inline object post_of(object loop, object when, object callback, tuple args, object context):
    return (<Loop>loop)._post_with(callback, args, context)


cdef inline object call_at_of(object loop, object when, object callback, tuple args, object context):
    return (<Loop>loop)._call_at_with(when, callback, args, context)


cdef inline object call_later_of(object loop, object delay, object callback, tuple args, object context):
    return (<Loop>loop)._call_later_with(delay, callback, args, context)


cdef extern from *:
    """
    /* CPython calls a function by the address that stands in it (PEP 590): have it call another, which takes the
       arguments in C, and gives those that it does not know to what the compiler has made. */
    static inline void whorl_exchange(PyObject *function, vectorcallfunc ours, vectorcallfunc *compiled) {
        Py_ssize_t offset = Py_TYPE(function)->tp_vectorcall_offset;
        vectorcallfunc *place = (vectorcallfunc *)((char *)function + offset);
        if (!PyVectorcall_Function(function))
            return;
        *compiled = *place;
        *place = ours;
    }

    /* The names of arguments are not always interned: that of CPython's tasks is not. */
    static inline int whorl_is_named(PyObject *name, const char *text) {
        Py_ssize_t size = (Py_ssize_t)strlen(text);
        return PyUnicode_IS_COMPACT_ASCII(name) && PyUnicode_GET_LENGTH(name) == size
               && memcmp(PyUnicode_1BYTE_DATA(name), text, size) == 0;
    }
    """
    void exchange "whorl_exchange"(object function, void *ours, void **compiled) noexcept


cdef extern from *:
    """
    /* The methods that schedule take their arguments here: a loop, a time if they have one, a callback, more, and
       perhaps a context by its name. Whatever else they are given goes to what the compiler has made, which knows all
       there is to refuse. */
    typedef PyObject *(*whorl_scheduler)(PyObject *loop, PyObject *when, PyObject *callback, PyObject *args,
                                         PyObject *context);

    static PyTypeObject *whorl_loop_type;

    /* Whether something is a loop: a class that has its layout is made from it by way of `tp_base`. */
    static inline int whorl_is_loop(PyObject *object) {
        PyTypeObject *type = Py_TYPE(object);
        while (type != NULL && type != whorl_loop_type)
            type = type->tp_base;
        return type != NULL;
    }

    /* `place`: that of the callback. What stands before it is the loop, or the time. */
    static inline PyObject *whorl_schedule(whorl_scheduler schedule, vectorcallfunc compiled, Py_ssize_t place,
                                           PyObject *function, PyObject *const *arguments, size_t flagged_count,
                                           PyObject *names) {
        Py_ssize_t count = PyVectorcall_NARGS(flagged_count), position;
        PyObject *context = Py_None, *args, *result;
        if (count <= place || !whorl_is_loop(arguments[0]))
            return compiled(function, arguments, flagged_count, names);
        if (names != NULL && PyTuple_GET_SIZE(names) > 0) {
            if (PyTuple_GET_SIZE(names) != 1 || !whorl_is_named(PyTuple_GET_ITEM(names, 0), "context"))
                return compiled(function, arguments, flagged_count, names);
            context = arguments[count];
        }
        args = PyTuple_New(count - place - 1);
        if (args == NULL)
            return NULL;
        for (position = place + 1; position < count; position++)
            PyTuple_SET_ITEM(args, position - place - 1, Py_NewRef(arguments[position]));
        result = schedule(arguments[0], arguments[place - 1], arguments[place], args, context);
        Py_DECREF(args);
        return result;
    }

    /* A method that takes its arguments so. */
    #define WHORL_SCHEDULING(name, place) \\
        static whorl_scheduler whorl_##name##_of; \\
        static vectorcallfunc whorl_compiled_##name; \\
        static PyObject *whorl_##name(PyObject *function, PyObject *const *arguments, size_t count, PyObject *names) { \\
            return whorl_schedule(whorl_##name##_of, whorl_compiled_##name, place, function, arguments, count, names); \\
        } \\
        static inline void whorl_take_##name(PyObject *method, whorl_scheduler scheduler) { \\
            whorl_##name##_of = scheduler; \\
            whorl_exchange(method, whorl_##name, &whorl_compiled_##name); \\
        }

    WHORL_SCHEDULING(call_soon, 1)
    WHORL_SCHEDULING(post, 1)
    WHORL_SCHEDULING(call_at, 2)
    WHORL_SCHEDULING(call_later, 2)

    static inline void whorl_know_loops(PyObject *type) {
        whorl_loop_type = (PyTypeObject *)type;
    }
    """
    ctypedef object (*scheduler)(object, object, object, tuple, object)
    void know_loops "whorl_know_loops"(object type) noexcept
    void take_call_soon "whorl_take_call_soon"(object method, scheduler schedule) noexcept
    void take_post "whorl_take_post"(object method, scheduler schedule) noexcept
    void take_call_at "whorl_take_call_at"(object method, scheduler schedule) noexcept
    void take_call_later "whorl_take_call_later"(object method, scheduler schedule) noexcept


cdef inline object take_arguments(object type, dict methods):
    know_loops(type)
    take_call_soon(methods["call_soon"], call_soon_of)
    take_post(methods["call_soon_threadsafe"], post_of)
    take_call_at(methods["call_at"], call_at_of)
    take_call_later(methods["call_later"], call_later_of)
