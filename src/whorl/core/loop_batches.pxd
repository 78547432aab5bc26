cimport cython
from libc.stdint cimport int64_t

from whorl.core.callback cimport (
    Callback, GuardedCallback, Runnable, attempt, current_thread, fetch, is_unshared, recycle_guarded, still_raised
)
from whorl.core.handle cimport Handle
from whorl.core.loop_figures cimport LoopFigures

cdef Py_ssize_t ENTRIES_AHEAD


cdef extern from *:
    """
    static inline PyObject *whorl_taken(PyObject *batch, Py_ssize_t index) {
        PyObject *entry;
        if (index >= PyList_GET_SIZE(batch)) {
            PyErr_SetString(PyExc_IndexError, "the batch has become shorter");
            return NULL;
        }
        entry = PyList_GET_ITEM(batch, index);
        Py_INCREF(Py_None);
        PyList_SET_ITEM(batch, index, Py_None);
        return entry;
    }
    """
    object taken "whorl_taken"(list batch, Py_ssize_t index)


cdef extern from *:
    """
    /* Take the only entry out of a list, which keeps its memory; None if there are others, or it is of another type. */
    static inline PyObject *whorl_only(PyObject *batch, PyObject *type) {
    #ifndef Py_GIL_DISABLED
        PyObject *entry;
        if (PyList_GET_SIZE(batch) == 1) {
            entry = PyList_GET_ITEM(batch, 0);
            if ((PyObject *)Py_TYPE(entry) == type) {
                Py_SET_SIZE(batch, 0);
                return entry;
            }
        }
    #endif
        return Py_NewRef(Py_None);
    }
    #define WHORL_ONLY(batch, type) ((void *)whorl_only(batch, type))
    """
    Callback only_one "WHORL_ONLY"(list batch, object type)


cdef extern from *:
    """
    /* Take everything out of a list of which nobody else knows. Where it is short and holds None only, it keeps its
       memory: turns would give that back and ask for it again. */
    static inline int whorl_empty(PyObject *list) {
        Py_ssize_t size = PyList_GET_SIZE(list), position;
    #ifndef Py_GIL_DISABLED
        for (position = 0; position < size && position < 64; position++)
            if (PyList_GET_ITEM(list, position) != Py_None)
                break;
        if (position == size) {
            Py_SET_SIZE(list, 0);
            while (position-- > 0)
                Py_DECREF(Py_None);
            return 0;
        }
    #endif
        return PyList_SetSlice(list, 0, size, NULL);
    }
    """
    int empty "whorl_empty"(list batch) except -1


cdef extern from *:
    """
    /* Take the last entry out of a list of which nobody else knows. A short one keeps its memory. */
    static inline PyObject *whorl_last_taken(PyObject *list) {
        Py_ssize_t last = PyList_GET_SIZE(list) - 1;
        PyObject *entry;
        if (last < 0) {
            PyErr_SetString(PyExc_IndexError, "the list has become empty");
            return NULL;
        }
        entry = PyList_GET_ITEM(list, last);
    #ifndef Py_GIL_DISABLED
        if (last < 64) {
            Py_SET_SIZE(list, last);
            return entry;
        }
    #endif
        Py_INCREF(entry);
        if (PyList_SetSlice(list, last, last + 1, NULL) == 0)
            return entry;
        Py_DECREF(entry);
        return NULL;
    }
    """
    object last_taken "whorl_last_taken"(list entries)


cdef class LoopBatches(LoopFigures):
    cdef readonly int64_t _passes
    cdef public object _watched_entry
    cdef public object _runner
    cdef list _holding

    cdef object _set_up(self, object kernel, object host)
    @cython.locals(batch=list, entry=Callback)
    cdef object _run_ready(self)
    @cython.locals(batch=list)
    cdef object _run_pending(self)
    @cython.locals(due=list)
    cdef object _run_timers(self)
    @cython.locals(closing=list, handle=Handle)
    cdef object _run_closing(self)
    @cython.locals(
        size=Py_ssize_t, done=Py_ssize_t, index=Py_ssize_t, before=int64_t, watched=bint,
        entry=Runnable
    )
    cdef object _run_batch(self, list batch, list queue)
    cdef bint _hold(self, Runnable handle) except -1
    cpdef object _send_held(self)
    @cython.locals(handle=Handle)
    cdef object _tell_holding(self)
    cdef object _entry_failed(self, Runnable entry, object error)
    @cython.locals(began=int64_t, took=int64_t)
    cdef object _run_watched(self, Runnable entry)
    cpdef object _run_entry(self, Runnable entry)


cdef object run_alone(LoopBatches loop, Callback entry)
cdef object attempt_failed(LoopBatches loop, Callback entry)
cdef object send_held_by(LoopBatches loop, Callback entry)
