/* The module that names the compiled modules beside it in its shared object; WHORL_MODULES lists them. It has
   the function by which they import each other. */

#include <Python.h>

static PyObject *spec_name;
static PyObject *initializing_name;

static int set_up(PyObject *module) {
    if (spec_name == NULL) {
        spec_name = PyUnicode_InternFromString("__spec__");
    }
    if (initializing_name == NULL) {
        initializing_name = PyUnicode_InternFromString("_initializing");
    }
    if (spec_name == NULL || initializing_name == NULL) {
        return -1;
    }
    return PyModule_AddStringConstant(module, "NAMES", WHORL_MODULES);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)set_up},
#if defined(Py_GIL_DISABLED) && defined(CYTHON_FREETHREADING_COMPATIBLE)
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "whorl._compiled", .m_doc = "The compiled modules.", .m_slots = slots,
};

/* Return whether a module is being imported, or says nothing about it. What goes wrong here is left to the
   ordinary import, which is asked then. */
static int is_being_imported(PyObject *module) {
    PyObject *spec = PyObject_GetAttr(module, spec_name);
    PyObject *flag = spec == NULL ? NULL : PyObject_GetAttr(spec, initializing_name);
    int answer = flag != Py_False;
    Py_XDECREF(spec);
    Py_XDECREF(flag);
    PyErr_Clear();
    return answer;
}

/* The compiled modules have this in the place of PyImport_ImportModule. That function imports the package of
   a module, too, though it returns the module. `whorl` is being imported meanwhile, so each call takes
   and frees the lock of that import: a third of the instructions of importing Whorl. Here a module that has been
   imported is returned at once. All others, and those that any thread is importing, go the ordinary way. */
PyObject *whorl_import_module(const char *name) {
    PyObject *key = PyUnicode_FromString(name);
    PyObject *module = key == NULL ? NULL : PyImport_GetModule(key);
    Py_XDECREF(key);
    if (module == NULL && PyErr_Occurred()) {
        return NULL;
    }
    if (module == NULL || is_being_imported(module)) {
        Py_XDECREF(module);
        return PyImport_ImportModule(name);
    }
    return module;
}

PyMODINIT_FUNC PyInit__compiled(void) {
    return PyModuleDef_Init(&definition);
}
