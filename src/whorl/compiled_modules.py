"""Finds the compiled modules, which all lie in one shared object: `whorl._compiled`.

Each is a module of its own for Python, with its own name and its own import. One file instead of many keeps
their code together, so the processor needs fewer pages of it.

A module that the shared object lacks is found as any other: uncompiled. Without the shared object all are.
"""

from __future__ import annotations

import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType


class CompiledLoader(ExtensionFileLoader):
    """Loads one module out of the shared object."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Make the module."""
        # Python calls the function that is named after the last part of a name. Some modules share theirs, so
        # each function in the shared object is named after all parts.
        package = spec.name.rpartition(".")[0]
        unique = ModuleSpec(f"{package}.{spec.name.replace('.', '__')}", self, origin=self.path)
        module = super().create_module(unique)
        module.__name__ = spec.name
        return module


class CompiledFinder:
    """Finds the modules in one shared object; it stands in `sys.meta_path`."""

    def __init__(self, names: str, path: str) -> None:
        self._names = frozenset(names.split())
        self._path = path

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the specification of a module in the shared object, or None."""
        if name not in self._names:
            return None
        return spec_from_file_location(name, self._path, loader=CompiledLoader(name, self._path))


def install() -> None:
    """Let Python find the compiled modules, if there are any."""
    try:
        import whorl._compiled as shared_object
    except ModuleNotFoundError as error:
        if error.name != "whorl._compiled":
            raise
    else:
        path: Any = shared_object.__file__
        sys.meta_path.insert(0, CompiledFinder(shared_object.NAMES, path))


install()
