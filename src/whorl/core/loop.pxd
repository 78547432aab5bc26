cimport cython
from libc.stdint cimport int64_t

from whorl.core.callback cimport Callback, new_callback, new_guarded_callback
from whorl.core.kernel cimport clock_is_patched
from whorl.core.loop_life cimport LoopLife
from whorl.core.timer cimport TimedCallback, new_timer, new_timer_after
from whorl.core.timer_heap cimport TimerHeap

cdef int DEFAULT
cdef int ONCE
cdef int PENDING_ROUNDS
cdef int QUIET_POLLS
cdef int JUST_WOKEN
cdef int TURNS_WITHOUT_POLL
cdef int64_t LONGEST_WITHOUT_POLL_NS


cdef class Loop(LoopLife):
    cdef int64_t _polled_at
    cdef int _skipped
    cdef bint _is_driven
    cdef bint _is_turning

    cdef object _set_up_loop(self, object poller, object kernel, object host)
    cdef object _call_soon_with(self, object callback, tuple args, object context)
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


cdef extern from *:
    """
    /* list.append; the compiler's own makes a call where a list is less than half full, as a turn's is. */
    static inline int whorl_append(PyObject *list, PyObject *entry) {
    #ifndef Py_GIL_DISABLED
        Py_ssize_t size = PyList_GET_SIZE(list);
        if (size < ((PyListObject *)list)->allocated) {
            PyList_SET_ITEM(list, size, Py_NewRef(entry));
            Py_SET_SIZE(list, size + 1);
            return 0;
        }
    #endif
        return PyList_Append(list, entry);
    }
    """
    int append "whorl_append"(list entries, object entry) except -1


cdef inline object call_soon_of(object loop, object callback, tuple args, object context):
    cdef Callback entry
    if (<Loop>loop)._closed or (<Loop>loop)._debug or (<Loop>loop)._posted:
        return (<Loop>loop)._call_soon_with(callback, args, context)
    if (<Loop>loop)._ready_queue is None:
        raise AttributeError("the loop is not initialized")
    entry = new_callback(<Loop>loop, callback, args, context)
    append((<Loop>loop)._ready_queue, entry)
    return entry


cdef inline object post_of(object loop, object callback, tuple args, object context):
    return (<Loop>loop)._post_with(callback, args, context)


cdef extern from *:
    """
    /* `call_soon` and `call_soon_threadsafe` take their arguments here: a loop, a callback, more, and perhaps a context
       by its name. Whatever else they are given goes to what the compiler has made, which knows all there is to refuse.
       CPython calls a function by the address that stands in it (PEP 590), and that is what is exchanged. */
    typedef PyObject *(*whorl_scheduler)(PyObject *loop, PyObject *callback, PyObject *args, PyObject *context);

    static PyTypeObject *whorl_loop_type;

    /* Whether something is a loop: a class that has its layout is made from it by way of `tp_base`. */
    static inline int whorl_is_loop(PyObject *object) {
        PyTypeObject *type = Py_TYPE(object);
        while (type != NULL && type != whorl_loop_type)
            type = type->tp_base;
        return type != NULL;
    }

    /* The names of arguments are not always interned: that of CPython's tasks is not. */
    static inline int whorl_is_context(PyObject *name) {
        return PyUnicode_IS_COMPACT_ASCII(name) && PyUnicode_GET_LENGTH(name) == 7
               && memcmp(PyUnicode_1BYTE_DATA(name), "context", 7) == 0;
    }

    static inline PyObject *whorl_schedule(whorl_scheduler schedule, vectorcallfunc compiled, PyObject *function,
                                           PyObject *const *arguments, size_t flagged_count, PyObject *names) {
        Py_ssize_t count = PyVectorcall_NARGS(flagged_count), position;
        PyObject *context = Py_None, *args, *result;
        if (count < 2 || !whorl_is_loop(arguments[0]))
            return compiled(function, arguments, flagged_count, names);
        if (names != NULL && PyTuple_GET_SIZE(names) > 0) {
            if (PyTuple_GET_SIZE(names) != 1 || !whorl_is_context(PyTuple_GET_ITEM(names, 0)))
                return compiled(function, arguments, flagged_count, names);
            context = arguments[count];
        }
        args = PyTuple_New(count - 2);
        if (args == NULL)
            return NULL;
        for (position = 2; position < count; position++)
            PyTuple_SET_ITEM(args, position - 2, Py_NewRef(arguments[position]));
        result = schedule(arguments[0], arguments[1], args, context);
        Py_DECREF(args);
        return result;
    }

    static whorl_scheduler whorl_call_soon_of, whorl_post_of;
    static vectorcallfunc whorl_compiled_call_soon, whorl_compiled_post;

    static PyObject *whorl_call_soon(PyObject *function, PyObject *const *arguments, size_t count, PyObject *names) {
        return whorl_schedule(whorl_call_soon_of, whorl_compiled_call_soon, function, arguments, count, names);
    }

    static PyObject *whorl_post(PyObject *function, PyObject *const *arguments, size_t count, PyObject *names) {
        return whorl_schedule(whorl_post_of, whorl_compiled_post, function, arguments, count, names);
    }

    static void whorl_exchange(PyObject *function, vectorcallfunc ours, vectorcallfunc *compiled) {
        Py_ssize_t offset = Py_TYPE(function)->tp_vectorcall_offset;
        vectorcallfunc *place = (vectorcallfunc *)((char *)function + offset);
        if (!PyVectorcall_Function(function))
            return;
        *compiled = *place;
        *place = ours;
    }

    static void whorl_take_arguments(PyObject *type, PyObject *call_soon, PyObject *post,
                                     whorl_scheduler call_soon_of, whorl_scheduler post_of) {
        whorl_loop_type = (PyTypeObject *)type;
        whorl_call_soon_of = call_soon_of;
        whorl_post_of = post_of;
        whorl_exchange(call_soon, whorl_call_soon, &whorl_compiled_call_soon);
        whorl_exchange(post, whorl_post, &whorl_compiled_post);
    }
    """
    void whorl_take_arguments(object type, object call_soon, object post,
                              object (*schedule)(object, object, tuple, object),
                              object (*send)(object, object, tuple, object)) noexcept


cdef inline object take_arguments(object type, object call_soon, object post):
    whorl_take_arguments(type, call_soon, post, call_soon_of, post_of)
