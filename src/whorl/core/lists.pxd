from whorl.core.callback cimport Callback


cdef extern from "whorl/core/lists.h":
    int append "whorl_append"(list entries, object entry) except -1
    object taken "whorl_taken"(list batch, Py_ssize_t index)
    Callback only_one "whorl_only_one"(list batch, object type)
    int empty "whorl_empty"(list batch) except -1
    object last_taken "whorl_last_taken"(list entries)
