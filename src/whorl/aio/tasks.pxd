from whorl.aio.running cimport Running as RunningLoop

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

    static inline PyObject *whorl_task_of(PyObject *cls, PyObject *coroutine) {
        PyObject *arguments = PyTuple_Pack(1, coroutine);
        PyObject *made = whorl_made_of(cls, arguments);
        Py_XDECREF(arguments);
        return made;
    }
    """
    object future_of "whorl_made_of"(object cls, tuple none)
    object task_of "whorl_task_of"(object cls, object coroutine)

cdef object _FUTURE
cdef object _TASK
cdef object _running_loop
cdef tuple _NONE


cdef inline bint says_nothing(dict options) except -1:
    # What asyncio's own functions name a task that has no name, before Python 3.14.
    return not options or (len(options) == 1 and options.get("name", options) is None)


cdef inline bint makes_tasks_plainly(RunningLoop loop) except -1:
    # Nobody has a say in it, and nothing is to be written down.
    return not loop._closed and loop._task_factory is None and not loop._debug


cpdef object task_of_factory(object loop, object coro, dict options)
