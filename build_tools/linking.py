"""Lets compiled modules use each other's functions, variables and classes directly.

Cython's modules find each other at run time: a module exports its functions by name. A module that cimports
them looks them up when it is imported, and calls them by a pointer. Whorl's modules lie in one shared object,
so the linker can do that. This changes the C code of a module accordingly:

* functions and variables that a `.pxd` declares are no longer static, but hidden in the shared object;
* pointers to those of other modules become declarations of the functions and variables themselves;
* a class of another module is asked of a function of that module.

A module still imports those that it uses before its own code runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable

SHARED = "HIDDEN"
_SHARED_IS = f'#define {SHARED} __attribute__((visibility("hidden")))\n'

_EXPORTS = ("Variable_export_code", "Function_export_code")
_IMPORTS = ("Variable_import_code", "Function_import_code")
_PART = r"^static int __Pyx_modinit_{}\(__pyx_mstatetype \*__pyx_mstate\) {{\n.*?^}}\n"
_BLOCK = re.compile(r"^  \{\n.*?^  \}\n", re.MULTILINE | re.DOTALL)
_EXPORTED = re.compile(r"&(__pyx_[fv]_\w+)")
_IMPORTED = re.compile(r"&(__pyx_(?:f|vp)_\w+)")
_OWN_TABLE = re.compile(r"^  __pyx_vtabptr_(\w+) = &__pyx_vtable_\w+;", re.MULTILINE)
_TABLE = re.compile(r"^static (struct __pyx_vtabstruct_\w+ \*__pyx_vtabptr_(\w+);)", re.MULTILINE)
_OWN_CLASS = re.compile(
    r"^  __pyx_mstate->__pyx_ptype_(\w+) = \(PyTypeObject \*\) __Pyx_PyType", re.MULTILINE
)
_CLASS = re.compile(
    r"^  __pyx_mstate->__pyx_ptype_(?P<name>\w+) = "
    r"__Pyx_ImportType_\w+\((?P<module>__pyx_t_\d+), \"whorl[^;]*;"
    r" if \(!__pyx_mstate->__pyx_ptype_\w+\) (?P<error>__PYX_ERR\([^)]*\))\n"
    r"(?:  if \(unlikely\(__Pyx_GetVtable\([^\n]*\n)?",
    re.MULTILINE,
)
_MODULE = re.compile(r'PyImport_ImportModule\("(whorl[\w.]*)"\)')
_ENDS = re.compile(
    r"__Pyx_(?:Import|Export)(?:Function|VoidPtr|Type)\w*\(__pyx_t_\d+, (?!__Pyx_BUILTIN_MODULE_NAME)"
)


class UnknownCodeError(Exception):
    """Cython writes other code than is known here."""


def linked_directly(code: str) -> str:
    """Return C code of a module, changed so that the linker finds what it uses of other modules."""
    exported = {name for part in _EXPORTS for name in _EXPORTED.findall(_part(code, part))}
    imported = {name for part in _IMPORTS for name in _IMPORTED.findall(_part(code, part))}
    for part in _EXPORTS:
        code = _with_part(code, part, lambda block: "")
    code = _with_own_shared(code, exported)
    code = _with_imported_shared(code, imported)
    code = _with_classes(code)
    known = set(_MODULE.findall(_part(code, "Type_import_code")))
    for part in _IMPORTS:
        code = _with_part(code, part, lambda block: _import_only(block, known))
    if left := _ENDS.search(code):
        raise UnknownCodeError(f"{left[0]}... is not known")
    begin = code.index('#include "Python.h"\n')
    return code[:begin] + _SHARED_IS + code[begin:]


def _part(code: str, name: str) -> str:
    """Return the function that is one part of the module's beginning; it is empty if there is none."""
    found = re.search(_PART.format(name), code, re.MULTILINE | re.DOTALL)
    return found[0] if found else ""


def _with_part(code: str, name: str, change: Callable[[str], str]) -> str:
    """Return the code with one part changed: each of its blocks, and the whole if none is left."""
    part = _part(code, name)
    changed = _BLOCK.sub(lambda block: change(block[0]), part)
    if not _BLOCK.search(changed):
        changed = (
            f"static int __Pyx_modinit_{name}(__pyx_mstatetype *__pyx_mstate) {{\n"
            "  CYTHON_UNUSED_VAR(__pyx_mstate);\n  return 0;\n}\n"
        )
    return code.replace(part, changed) if part else code


def _with_own_shared(code: str, exported: set[str]) -> str:
    """Share the functions, variables, and tables of methods that are this module's own."""
    tables = set(_OWN_TABLE.findall(code))
    classes = [name for name in _OWN_CLASS.findall(code) if "__pyx_scope_struct" not in name]
    asked = [
        f"{SHARED} PyTypeObject *whorl_class_{name}(void);\n"
        f"PyTypeObject *whorl_class_{name}(void) {{ return __pyx_mstate_global->__pyx_ptype_{name}; }}\n"
        for name in classes
    ]
    lines = re.compile(r"^static ((?:[^\n(=;]*[ *])(__pyx_[fv]_\w+)(?:\(|;|\[| = ))", re.MULTILINE)
    shared: set[str] = set()

    def share(found: re.Match[str]) -> str:
        if found[2] not in exported:
            return found[0]
        shared.add(found[2])
        return f"{SHARED} {found[1]}"

    code = lines.sub(share, code)
    if missing := exported - shared:
        raise UnknownCodeError(f"no definition of {min(missing)}")
    code = _TABLE.sub(lambda found: f"{SHARED} {found[1]}" if found[2] in tables else found[0], code)
    return code + "".join(asked)


def _with_imported_shared(code: str, imported: set[str]) -> str:
    """Declare what other modules share, where there are pointers to it."""
    declared: set[str] = set()
    pointers = re.compile(r"^static ([^\n;]*)\(\*(__pyx_f_\w+)\)(\([^\n;]*\);)", re.MULTILINE)

    def declare_function(found: re.Match[str]) -> str:
        if found[2] not in imported:
            return found[0]
        declared.add(found[2])
        return f"{SHARED} {found[1]}{found[2]}{found[3]}"

    def declare_variable(found: re.Match[str]) -> str:
        declared.add(f"__pyx_vp_{found[2]}")
        return f"extern {SHARED} {found[1]}__pyx_v_{found[2]};\n"

    code = pointers.sub(declare_function, code)
    variables = re.compile(
        r"^static ([^\n;=]*?)\*__pyx_vp_(\w+) = 0;\n#define __pyx_v_\w+ \(\*__pyx_vp_\w+\)\n", re.MULTILINE
    )
    code = variables.sub(declare_variable, code)
    if missing := imported - declared:
        raise UnknownCodeError(f"no declaration of {min(missing)}")
    return _TABLE.sub(f"extern {SHARED} \\1", code)


def _with_classes(code: str) -> str:
    """Ask the other modules' functions for their classes."""
    names: set[str] = set()

    def ask(found: re.Match[str]) -> str:
        name, module, error = found["name"], found["module"], found["error"]
        names.add(name)
        return (
            f"  __pyx_mstate->__pyx_ptype_{name} = whorl_shared_class({module}, whorl_class_{name}());"
            f" if (!__pyx_mstate->__pyx_ptype_{name}) {error}\n"
        )

    code = _CLASS.sub(ask, code)
    declared = "".join(f"{SHARED} PyTypeObject *whorl_class_{name}(void);\n" for name in sorted(names))
    if not names:
        return code
    declared += f"{SHARED} PyTypeObject *whorl_shared_class(PyObject *, PyTypeObject *);\n"
    place = code.index("static int __Pyx_modinit_")
    return code[:place] + declared + code[place:]


def _import_only(block: str, known: set[str]) -> str:
    """Return a block that only imports the module of a block; nothing if that module is imported already."""
    found = re.search(
        r"^    __pyx_t_1 = PyImport_ImportModule\(\"(whorl[\w.]*)\"\);[^\n]*\n", block, re.MULTILINE
    )
    if found is None:
        raise UnknownCodeError(f"no module is imported in {block}")
    if found[1] in known:
        return ""
    known.add(found[1])
    return f"  {{\n{found[0]}    __Pyx_DECREF(__pyx_t_1); __pyx_t_1 = 0;\n  }}\n"
