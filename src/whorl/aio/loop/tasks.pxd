from whorl.aio.loop.lifecycle cimport Running as RunningLoop
from whorl.aio.futures.task_factory cimport task_of_factory
from whorl.core.loop.loop cimport exchange

cdef extern from *:
    """
    /* An object of exactly this class, made of these arguments and no others: what calling the class does. */
    static inline PyObject *whorl_made_of(PyObject *cls, PyObject *arguments) {
        PyTypeObject *type = (PyTypeObject *)cls;
        PyObject *made = arguments == NULL ? NULL : type->tp_new(type, arguments, NULL);
        if (made != NULL && type->tp_init(made, arguments, NULL) < 0)
            Py_CLEAR(made);
        return made;
    }

    static PyObject *whorl_spare_arguments; /* a tuple with room for one, of which nobody knows */

    static inline PyObject *whorl_task_of(PyObject *cls, PyObject *coroutine) {
        PyObject *arguments = whorl_spare_arguments, *made;
        whorl_spare_arguments = NULL;
        if (arguments == NULL) {
            arguments = PyTuple_New(1);
            if (arguments == NULL)
                return NULL;
    #ifndef Py_GIL_DISABLED
            PyObject_GC_UnTrack(arguments);
    #endif
        }
        PyTuple_SET_ITEM(arguments, 0, Py_NewRef(coroutine));
        made = whorl_made_of(cls, arguments);
    #ifndef Py_GIL_DISABLED
        if (Py_REFCNT(arguments) == 1 && whorl_spare_arguments == NULL) {
            whorl_spare_arguments = arguments;
            PyTuple_SET_ITEM(arguments, 0, NULL);
            Py_DECREF(coroutine);
            return made;
        }
        PyObject_GC_Track(arguments); /* somebody keeps it */
    #endif
        Py_DECREF(arguments);
        return made;
    }
    """
    object future_of "whorl_made_of"(object cls, tuple none)
    object task_of "whorl_task_of"(object cls, object coroutine)

cdef object _FUTURE
cdef object _TASK
cdef dict _NAMES
cdef object _running_loop
cdef tuple _NONE


cdef inline bint says_nothing(dict options) except -1:
    # What asyncio's own functions name a task that has no name, before Python 3.14.
    return not options or (len(options) == 1 and options.get("name", options) is None)


cdef inline bint makes_tasks_plainly(RunningLoop loop) except -1:
    # Nobody has a say in it, and nothing is to be written down.
    return not loop._closed and loop._task_factory is None and not loop._debug


cdef inline object plain_task(object loop, object coroutine):
    # None if there is more to do than to make one of CPython's own tasks for the running loop.
    if (
        isinstance(loop, RunningLoop)
        and makes_tasks_plainly(<RunningLoop>loop)
        and _NAMES["Task"] is _TASK
        and _running_loop() is loop
    ):
        return task_of(_TASK, coroutine)
    return None


cdef extern from *:
    """
    /* `create_task` of a loop and a coroutine; of more than those the compiler's knows. */
    typedef PyObject *(*whorl_task_maker)(PyObject *loop, PyObject *coroutine);

    static whorl_task_maker whorl_plain_task;
    static vectorcallfunc whorl_compiled_create_task;

    /* No names; or the one that asyncio's own functions give a task that has none, before Python 3.14. */
    static inline int whorl_says_nothing(PyObject *names, PyObject *const *values) {
        return names == NULL || PyTuple_GET_SIZE(names) == 0
               || (PyTuple_GET_SIZE(names) == 1 && values[0] == Py_None
                   && whorl_is_named(PyTuple_GET_ITEM(names, 0), "name"));
    }

    static PyObject *whorl_create_task(PyObject *function, PyObject *const *arguments, size_t count, PyObject *names) {
        if (PyVectorcall_NARGS(count) == 2 && whorl_says_nothing(names, arguments + 2)) {
            PyObject *made = whorl_plain_task(arguments[0], arguments[1]);
            if (made != Py_None)
                return made;
            Py_DECREF(made);
        }
        return whorl_compiled_create_task(function, arguments, count, names);
    }

    static inline void whorl_take_create_task(PyObject *create_task, whorl_task_maker maker) {
        whorl_plain_task = maker;
        whorl_exchange(create_task, whorl_create_task, &whorl_compiled_create_task);
    }
    """
    void take_create_task "whorl_take_create_task"(object create_task, object (*maker)(object, object)) noexcept


cdef inline object take_arguments(object create_task):
    take_create_task(create_task, plain_task)
