/* The module that names the compiled modules beside it in its shared object; WHORL_MODULES lists them. */

#include <Python.h>

static int add_names(PyObject *module) {
    return PyModule_AddStringConstant(module, "NAMES", WHORL_MODULES);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)add_names},
#if defined(Py_GIL_DISABLED) && defined(CYTHON_FREETHREADING_COMPATIBLE)
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "whorl._compiled", .m_doc = "The compiled modules.", .m_slots = slots,
};

PyMODINIT_FUNC PyInit__compiled(void) {
    return PyModuleDef_Init(&definition);
}
