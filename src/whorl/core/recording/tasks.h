/* Which task a callback steps, what tells callbacks apart, and the target of a weak reference. */
#pragma once
#include "whorl/core/references.h"
#include <string.h>

/* Return the object that a weak reference refers to, or None. Python would take a reference to it, which a
   task that is being freed does not survive. */
static inline PyObject *whorl_referent(PyObject *reference) {
    return ((PyWeakReference *)reference)->wr_object;
}

/* Return a weak reference without a callback, or NULL if there is no memory for it. */
static inline PyObject *whorl_refer_weakly(PyObject *thing) {
    PyObject *reference = PyWeakref_NewRef(thing, NULL);
    if (reference == NULL)
        PyErr_Clear();
    return reference;
}

#define WHORL_STEP_METHODS 16

static PyTypeObject *whorl_step_type; /* of the objects that begin a task of asyncio's in C */
static PyTypeObject *whorl_task_type; /* of these tasks */
static PyMethodDef *whorl_wakeup;     /* their method that lets them go on */
static PyObject *whorl_step_methods[WHORL_STEP_METHODS];
static PyMethodDef *whorl_step_defs[WHORL_STEP_METHODS];

/* Learn which type of callback begins a task, from one and its task; return whether the task lies where it
   is looked for. Python's way to ask makes a reference of each. */
static inline int whorl_learn_step(PyObject *step, PyObject *task) {
    if (Py_TYPE(step)->tp_basicsize < (Py_ssize_t)(sizeof(PyObject) + sizeof(PyObject *))
        || *(PyObject **)((char *)step + sizeof(PyObject)) != task)
        return 0;
    whorl_step_type = (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(step));
    whorl_task_type = (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(task));
    return 1;
}

/* Learn a function whose bound methods step the task that they are bound to. Python's lists take longer. */
static inline void whorl_learn_method(PyObject *function) {
    int index = 0;
    if (Py_TYPE(function) == &PyMethodDescr_Type) { /* of a compiled class */
        while (index < WHORL_STEP_METHODS - 1 && whorl_step_defs[index] != NULL)
            index++;
        whorl_step_defs[index] = ((PyMethodDescrObject *)function)->d_method;
        return;
    }
    while (index < WHORL_STEP_METHODS && whorl_step_methods[index] != NULL)
        if (whorl_step_methods[index++] == function)
            return;
    if (index < WHORL_STEP_METHODS)
        whorl_step_methods[index] = Py_NewRef(function);
}

/* Return whether a callback may be the step of a task: functions in Python, which most are, never are. Other
   modules use this too, so it reads no variable of this file, of which each module has its own. As below. */
static inline int whorl_may_step(PyObject *called) {
    return Py_TYPE(called) != &PyFunction_Type;
}

/* Return the task that a callback steps, or None. Each callback is asked; Python's way to ask takes longer
   than the callback. */
static inline PyObject *whorl_stepped_by(PyObject *called) {
    PyTypeObject *type = Py_TYPE(called);
    int index;
    if (type == whorl_step_type)
        return Py_NewRef(*(PyObject **)((char *)called + sizeof(PyObject)));
    if (type == &PyCFunction_Type) {
        PyMethodDef *method = ((PyCFunctionObject *)called)->m_ml;
        PyObject *self = ((PyCFunctionObject *)called)->m_self;
        if (self == NULL)
            return Py_NewRef(Py_None);
        if (whorl_wakeup == NULL && whorl_task_type != NULL
            && PyType_IsSubtype(Py_TYPE(self), whorl_task_type)
            && strcmp(method->ml_name, "task_wakeup") == 0)
            whorl_wakeup = method;
        if (method == whorl_wakeup)
            return Py_NewRef(self);
        for (index = 0; index < WHORL_STEP_METHODS && whorl_step_defs[index] != NULL; index++)
            if (whorl_step_defs[index] == method)
                return Py_NewRef(self);
    } else if (type == &PyMethod_Type) {
        for (index = 0; index < WHORL_STEP_METHODS && whorl_step_methods[index] != NULL; index++)
            if (whorl_step_methods[index] == PyMethod_GET_FUNCTION(called))
                return Py_NewRef(PyMethod_GET_SELF(called));
    }
    return Py_NewRef(Py_None);
}

/* What tells the callbacks of one function apart from those of others: code, the description of a C
   function, or NULL for other objects. Python would make references, and compare code by its contents. */
static inline uintptr_t whorl_key_of(PyObject *called) {
    if (Py_TYPE(called) == &PyMethod_Type)
        called = PyMethod_GET_FUNCTION(called);
    if (Py_TYPE(called) == &PyFunction_Type)
        return (uintptr_t)PyFunction_GET_CODE(called);
    if (Py_TYPE(called) == &PyCFunction_Type || Py_TYPE(called) == &PyCMethod_Type)
        return (uintptr_t)((PyCFunctionObject *)called)->m_ml;
    return 0;
}

/* The key of a function in Python, 0 for all else. Python would make a reference. */
static inline uintptr_t whorl_function_key(PyObject *called) {
    return Py_TYPE(called) == &PyFunction_Type ? (uintptr_t)PyFunction_GET_CODE(called) : 0;
}

/* The address of an object, as its key. Python would make an object of it. */
static inline uintptr_t whorl_address_of(PyObject *thing) {
    return (uintptr_t)thing;
}

/* The type of an object as a number. Python would make an object of it. */
static inline uintptr_t whorl_type_key(PyObject *thing) {
    return (uintptr_t)Py_TYPE(thing);
}

/* Ask a task by a descriptor or a function; return None if that fails, as nobody could be told. A descriptor
   that Python calls makes objects for that. The getter of a C class is called as its descriptor does it. */
static inline PyObject *whorl_ask(PyObject *descriptor, PyObject *task) {
    PyObject *answer;
    if (Py_IS_TYPE(descriptor, &PyGetSetDescr_Type)
        && PyObject_TypeCheck(task, ((PyGetSetDescrObject *)descriptor)->d_common.d_type)) {
        PyGetSetDef *way = ((PyGetSetDescrObject *)descriptor)->d_getset;
        answer = way->get == NULL ? NULL : way->get(task, way->closure);
    } else if (PyFunction_Check(descriptor) || Py_TYPE(descriptor)->tp_descr_get == NULL) {
        answer = PyObject_CallOneArg(descriptor, task);
    } else {
        answer = Py_TYPE(descriptor)->tp_descr_get(descriptor, task, (PyObject *)Py_TYPE(task));
    }
    if (answer != NULL || !PyErr_ExceptionMatches(PyExc_Exception))
        return answer;
    PyErr_Clear();
    return Py_NewRef(Py_None);
}

/* Return N for the name `Task-N`, and -1 for others. Python would make objects of the parts of each name. */
static inline int64_t whorl_number_in(PyObject *name) {
    const char *text;
    Py_ssize_t place, size;
    int64_t number = 0;
    if (!PyUnicode_CheckExact(name) || !PyUnicode_IS_ASCII(name))
        return -1;
    text = (const char *)PyUnicode_DATA(name);
    size = PyUnicode_GET_LENGTH(name);
    if (size < 6 || size > 14 || memcmp(text, "Task-", 5) != 0 || text[5] == '0')
        return -1;
    for (place = 5; place < size; place++) {
        if (text[place] < '0' || text[place] > '9')
            return -1;
        number = 10 * number + (text[place] - '0');
    }
    return number;
}
