/* Timers that the collector does not see. It looks at every new object some two times. A timer to which only
   its heap refers need not be among those objects, since the heap visits it. */
#pragma once
#include "whorl/core/references.h"

/* Hide a timer from the collector if only its heap refers to it. Python cannot hide one object. */
static inline void whorl_leave_out(PyObject *timer) {
    if (whorl_has_single_reference(timer) && PyObject_IS_GC(timer))
        PyObject_GC_UnTrack(timer);
}

/* Show a timer to the collector again. Python cannot show one object. */
static inline void whorl_take_in(PyObject *timer) {
    if (!PyObject_GC_IsTracked(timer))
        PyObject_GC_Track(timer);
}

struct whorl_visit {
    visitproc visit;
    void *arg;
};

static traverseproc whorl_traverse_lists;

/* Visit a list that a heap refers to, and what the hidden timers in it refer to. If other code has found
   the list or such a timer, what they refer to counts as in use. The collector calls no Python. */
static inline int whorl_visit_list(PyObject *list, void *arg) {
    struct whorl_visit *outer = (struct whorl_visit *)arg;
    Py_ssize_t position;
    int result = outer->visit(list, outer->arg);
    if (!PyList_CheckExact(list) || Py_REFCNT(list) != 1)
        return result;
    for (position = 0; result == 0 && position < PyList_GET_SIZE(list); position++) {
        PyObject *timer = PyList_GET_ITEM(list, position);
        if (timer != NULL && PyObject_IS_GC(timer) && Py_REFCNT(timer) == 1
            && !PyObject_GC_IsTracked(timer))
            result = Py_TYPE(timer)->tp_traverse(timer, outer->visit, outer->arg);
    }
    return result;
}

/* Visit what a heap refers to. The collector calls no Python. */
static inline int whorl_traverse_heap(PyObject *heap, visitproc visit, void *arg) {
    struct whorl_visit inner = {visit, arg};
    return whorl_traverse_lists(heap, whorl_visit_list, &inner);
}

/* Let the class of heaps be visited so. Cython writes `tp_traverse` itself and offers no way to add to it. */
static inline void whorl_answer_for_timers(PyObject *heap_class) {
    PyTypeObject *heap = (PyTypeObject *)heap_class;
    if (!WHORL_HAS_GIL || heap->tp_traverse == whorl_traverse_heap)
        return;
    whorl_traverse_lists = heap->tp_traverse;
    heap->tp_traverse = whorl_traverse_heap;
}
