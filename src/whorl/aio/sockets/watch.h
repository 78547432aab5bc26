/* Python's class of sockets, and its state at the last check. An interpreter gives a changed class another
   number. */
#ifndef WHORL_AIO_SOCKETS_WATCH_H
#define WHORL_AIO_SOCKETS_WATCH_H

#include "whorl/core/references.h"

static PyTypeObject *whorl_sockets;
static unsigned int whorl_version_of_sockets;
static PyObject *whorl_plain_recv, *whorl_plain_send, *whorl_plain_fileno;

/* Return whether the class has the methods that it always had. Its number is noted; Python hides it. */
static int whorl_look_at_sockets(void) {
    PyObject *cls = (PyObject *)whorl_sockets;
    PyObject *recv = PyObject_GetAttrString(cls, "recv"), *send = PyObject_GetAttrString(cls, "send");
    PyObject *fileno = PyObject_GetAttrString(cls, "fileno");
    int as_ever = recv == whorl_plain_recv && send == whorl_plain_send && fileno == whorl_plain_fileno;
    PyErr_Clear();
    Py_XDECREF(recv);
    Py_XDECREF(send);
    Py_XDECREF(fileno);
    whorl_version_of_sockets = as_ever ? (unsigned int)whorl_sockets->tp_version_tag : 0;
    return as_ever;
}

/* Note the class and its methods. Python does not show whether a method is a C function without arguments. */
static inline int whorl_learn_sockets(PyObject *cls) {
    if (!PyType_Check(cls))
        return 0;
    whorl_plain_recv = PyObject_GetAttrString(cls, "recv");
    whorl_plain_send = PyObject_GetAttrString(cls, "send");
    whorl_plain_fileno = PyObject_GetAttrString(cls, "fileno");
    PyErr_Clear();
    if (whorl_plain_recv == NULL || whorl_plain_send == NULL || whorl_plain_fileno == NULL
        || !Py_IS_TYPE(whorl_plain_fileno, &PyMethodDescr_Type)
        || ((PyMethodDescrObject *)whorl_plain_fileno)->d_method->ml_flags != METH_NOARGS)
        return 0;
    whorl_sockets = (PyTypeObject *)Py_NewRef(cls);
    return 0;
}

/* Return whether this is a socket of that class, as it always was. Python does not show a class's number. */
static inline int whorl_is_plain(PyObject *sock) {
    if (whorl_sockets == NULL || !Py_IS_TYPE(sock, whorl_sockets))
        return 0;
    if (whorl_version_of_sockets != 0
        && whorl_version_of_sockets == (unsigned int)whorl_sockets->tp_version_tag)
        return 1;
    return whorl_look_at_sockets();
}

/* Return the result of `fileno`. Python would look the method up at each call of `sock_recv`. */
static inline PyObject *whorl_descriptor_in(PyObject *sock) {
    if (whorl_is_plain(sock))
        return ((PyMethodDescrObject *)whorl_plain_fileno)->d_method->ml_meth(sock, NULL);
    return PyObject_CallMethod(sock, "fileno", NULL);
}

#endif
