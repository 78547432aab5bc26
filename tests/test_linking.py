"""Compiled modules use each other's functions, variables and classes as the linker finds them."""

from __future__ import annotations

import ctypes
import sys
from importlib.machinery import ModuleSpec
from typing import Any

import pytest

import whorl
from build_tools.linking import UnknownCodeError, linked_directly

only_compiled = pytest.mark.skipif(not whorl.compiled, reason="about what is compiled")

HEAD = '#include "Python.h"\n'
EXPORT = """static int __Pyx_modinit_Function_export_code(__pyx_mstatetype *__pyx_mstate) {
  /*--- Function export code ---*/
  {
    void (*const pointers[])(void) = {(void (*)(void))&__pyx_f_made_by, (void (*)(void)) NULL};
  }
  return 0;
}
"""
IMPORT = """static int __Pyx_modinit_Function_import_code(__pyx_mstatetype *__pyx_mstate) {
  /*--- Function import code ---*/
  {
    __pyx_t_1 = PyImport_ImportModule("whorl.other"); if (!__pyx_t_1) goto __pyx_L1_error;
    void (**const pointers[])(void) = {(void (**)(void))&__pyx_f_made_by, (void (**)(void)) NULL};
  }
  return 0;
}
"""
LOOK_UP = "  if (__Pyx_ImportFunction_4_0(__pyx_t_1, name, pointer, signature) < 0) goto error;\n"


def test_an_exported_function_is_shared() -> None:
    code = linked_directly(f"{HEAD}static int __pyx_f_made_by(int); /*proto*/\n{EXPORT}")
    assert "\nHIDDEN int __pyx_f_made_by(int); /*proto*/\n" in code
    assert "pointers" not in code


def test_an_imported_function_is_declared_and_its_module_imported() -> None:
    code = linked_directly(f"{HEAD}static int (*__pyx_f_made_by)(int); /*proto*/\n{IMPORT}")
    assert "\nHIDDEN int __pyx_f_made_by(int); /*proto*/\n" in code
    assert 'PyImport_ImportModule("whorl.other")' in code
    assert "pointers" not in code


@pytest.mark.parametrize(
    ("code", "what"),
    [
        (EXPORT, "no definition of __pyx_f_made_by"),
        (IMPORT, "no declaration of __pyx_f_made_by"),
        (LOOK_UP, "__Pyx_ImportFunction_4_0"),
    ],
)
def test_code_that_nobody_knows_is_an_error(code: str, what: str) -> None:
    with pytest.raises(UnknownCodeError, match=what):
        linked_directly(HEAD + code)


@only_compiled
def test_a_compiled_module_exports_nothing_by_name() -> None:
    from whorl import _compiled

    assert len(_compiled.NAMES) > 50
    assert not [name for name in _compiled.NAMES if hasattr(sys.modules.get(name), "__pyx_capi__")]


@only_compiled
def test_the_shared_object_shows_no_function_of_a_module() -> None:
    from whorl import _compiled

    library = ctypes.PyDLL(_compiled.__file__)
    assert hasattr(library, "PyInit__compiled")
    assert not hasattr(library, "PyInit_whorl__core__loop__loop")


@only_compiled
def test_a_module_that_is_not_compiled_is_an_error() -> None:
    from whorl import _compiled

    with pytest.raises(ImportError, match=r"no compiled module is called 'whorl\.cli'"):
        _compiled.make_module(ModuleSpec("whorl.cli", None))
    without_name: Any = object()
    with pytest.raises(AttributeError):
        _compiled.make_module(without_name)
