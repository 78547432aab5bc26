/* The module that makes the compiled modules beside it in its shared object. WHORL_TABLE lists them, as
   MODULE(name, function). It also has the functions by which they import each other. */

#include <Python.h>
#include <string.h>

static PyObject *spec_name;
static PyObject *initializing_name;

#define MODULE(name, make) PyObject *make(void);
#include WHORL_TABLE
#undef MODULE

static const struct {
    const char *name;
    PyObject *(*make)(void);
} modules[] = {
#define MODULE(name, make) {name, make},
#include WHORL_TABLE
#undef MODULE
};
static const size_t module_count = sizeof modules / sizeof modules[0];

/* Add a tuple of the modules' names. */
static int add_names(PyObject *module) {
    PyObject *names = PyTuple_New(module_count);
    size_t index;
    int answer = -1;
    for (index = 0; names != NULL && index < module_count; index++) {
        PyObject *name = PyUnicode_FromString(modules[index].name);
        if (name == NULL)
            goto end;
        PyTuple_SET_ITEM(names, index, name);
    }
    answer = names == NULL ? -1 : PyModule_AddObjectRef(module, "NAMES", names);
end:
    Py_XDECREF(names);
    return answer;
}

/* Make a module for its specification, without running it. Python's own loader opens the shared object anew
   for each module, and looks for a function in it that is named after the module. */
static PyObject *make_module(PyObject *self, PyObject *spec) {
    PyObject *name = PyObject_GetAttrString(spec, "name"), *definition, *module = NULL;
    const char *text = name == NULL ? NULL : PyUnicode_AsUTF8(name);
    size_t index = 0;
    if (text == NULL)
        goto end;
    while (index < module_count && strcmp(modules[index].name, text) != 0)
        index++;
    if (index == module_count) {
        PyErr_Format(PyExc_ImportError, "no compiled module is called %R", name);
        goto end;
    }
    definition = modules[index].make();
    if (definition != NULL)
        module = PyModule_FromDefAndSpec((PyModuleDef *)definition, spec);
end:
    Py_XDECREF(name);
    return module;
}

static PyMethodDef functions[] = {
    {"make_module", make_module, METH_O, "Make the compiled module of this specification; the loader runs it."},
    {NULL, NULL, 0, NULL},
};

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
    return add_names(module);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)set_up},
#if defined(Py_GIL_DISABLED) && defined(CYTHON_FREETHREADING_COMPATIBLE)
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "whorl._compiled", .m_doc = "The compiled modules.", .m_methods = functions,
    .m_slots = slots,
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
