cimport cython
from libc.stdint cimport int64_t

from whorl.core.callback cimport Callback, Runnable, current_thread, recycle
from whorl.core.handle cimport Handle
from whorl.core.loop_figures cimport LoopFigures

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


cdef class LoopBatches(LoopFigures):
    cdef readonly int64_t _passes
    cdef readonly object _watched_entry
    cdef public object _runner
    cdef list _holding

    cdef object _set_up(self, object kernel, object host)
    @cython.locals(batch=list)
    cdef object _run_ready(self)
    @cython.locals(batch=list)
    cdef object _run_pending(self)
    @cython.locals(due=list)
    cdef object _run_timers(self)
    @cython.locals(closing=list, handle=Handle)
    cdef object _run_closing(self)
    @cython.locals(
        size=Py_ssize_t, done=Py_ssize_t, index=Py_ssize_t, before=int64_t, watched=bint, entry=Runnable
    )
    cdef object _run_batch(self, list batch, list queue)
    cdef bint _hold(self, Runnable handle) except -1
    @cython.locals(handle=Handle)
    cpdef object _send_held(self)
    cdef object _entry_failed(self, Runnable entry, object error)
    @cython.locals(began=int64_t, took=int64_t)
    cdef object _run_watched(self, Runnable entry)
    cpdef object _run_entry(self, Runnable entry)
