/* Methods that a class takes over from another. */
#ifndef WHORL_AIO_TRANSPORTS_BYTE_TRANSPORT_H
#define WHORL_AIO_TRANSPORTS_BYTE_TRANSPORT_H

#include "whorl/core/references.h"

/* Return the same method as a descriptor of this class; return anything else unchanged. Python cannot make
   descriptors of methods that are written in C. */
static inline PyObject *whorl_method_of(PyObject *cls, PyObject *method) {
    if (Py_TYPE(method) != &PyMethodDescr_Type || !PyType_Check(cls))
        return Py_NewRef(method);
    return PyDescr_NewMethod((PyTypeObject *)cls, ((PyMethodDescrObject *)method)->d_method);
}

#endif
