from whorl.core.callback cimport Callback


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
