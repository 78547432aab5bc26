"""Finds Whorl's modules. The compiled ones all lie in one shared object: `whorl._compiled`.

Each is a module of its own for Python, with its own name and its own import. One file instead of many keeps
their code together, so the processor needs fewer pages of it.

A module that the shared object lacks is uncompiled. Without the shared object all are.
"""

from __future__ import annotations

import os.path
import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec, SourceFileLoader
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType


class CompiledLoader(ExtensionFileLoader):
    """Loads one module out of the shared object."""

    def __init__(self, name: str, shared_object: ModuleType) -> None:
        super().__init__(name, str(shared_object.__file__))
        self._shared_object = shared_object

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Make the module."""
        make: Any = self._shared_object
        module: ModuleType = make.make_module(spec)
        return module


class Finder:
    """Finds the modules below this package; it stands in `sys.meta_path`.

    Python's own finder lists each folder first, and there are about as many folders as a start imports files.
    """

    def __init__(self, shared_object: ModuleType | None = None) -> None:
        self._shared_object = shared_object
        self._compiled: frozenset[str] = frozenset(getattr(shared_object, "NAMES", ()))

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the specification of a module of Whorl's; None if it is not where it is expected."""
        if self._shared_object is not None and name in self._compiled:
            loader = CompiledLoader(name, self._shared_object)
            return _located(ModuleSpec(name, loader, origin=loader.path))
        if not path or not name.startswith("whorl."):
            return None
        stem = f"{path[0]}{os.sep}{name.rpartition('.')[2]}"
        if os.path.isfile(file := f"{stem}.py"):
            return _located(ModuleSpec(name, SourceFileLoader(name, file), origin=file))
        if os.path.isfile(file := f"{stem}{os.sep}__init__.py"):
            package = ModuleSpec(name, SourceFileLoader(name, file), origin=file, is_package=True)
            package.submodule_search_locations = [stem]
            return _located(package)
        return None


def _located(spec: ModuleSpec) -> ModuleSpec:
    """Let a module have its origin as its file; return the specification."""
    spec.has_location = True
    return spec


def install() -> None:
    """Let Python find the modules here before it looks elsewhere."""
    try:
        import whorl._compiled as shared_object
    except ModuleNotFoundError as error:
        if error.name != "whorl._compiled":
            raise
        finder = Finder()
    else:
        finder = Finder(shared_object)
    sys.meta_path.insert(0, finder)


install()
