"""Finds Whorl's modules. The compiled ones all lie in one shared object: `whorl._compiled`.

Each is a module of its own for Python, with its own name and its own import. One file instead of many keeps
their code together, so the processor needs fewer pages of it.

A module that the shared object lacks is uncompiled. Without the shared object all are.

The finder is one of path entries: Python's `PathFinder` asks it about the folders of this package. So every
other finder that looks along a path, such as pytest's, finds the compiled modules too, whoever was first.
"""

from __future__ import annotations

import os.path
import sys
import warnings
from importlib import import_module
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
    SourcelessFileLoader,
)
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType


LOADERS: tuple[Any, ...] = (  # Python's own, in its order
    (ExtensionFileLoader, EXTENSION_SUFFIXES),
    (SourceFileLoader, [".py"]),
    (SourcelessFileLoader, BYTECODE_SUFFIXES),
)


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


class Finder(FileFinder):
    """Finds the modules in one folder of this package.

    Python's own finder lists each folder first, and there are about as many folders as a start imports files.
    This one lists a folder only if a module is not where it is expected.
    """

    def __init__(self, folder: str, shared_object: ModuleType | None = None, archive: Any = None) -> None:
        super().__init__(folder, *LOADERS)
        self._archive = archive  # another finder of the same folder, or None
        self._shared_object = shared_object
        self._compiled: frozenset[str] = frozenset(getattr(shared_object, "NAMES", ()))

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the specification of a module of Whorl's; None if there is none."""
        if self._shared_object is not None and fullname in self._compiled:
            loader = CompiledLoader(fullname, self._shared_object)
            return _located(ModuleSpec(fullname, loader, origin=loader.path))
        stem = f"{self.path}{os.sep}{fullname.rpartition('.')[2]}"
        if os.path.isfile(file := f"{stem}.py"):
            return _located(ModuleSpec(fullname, SourceFileLoader(fullname, file), origin=file))
        if os.path.isfile(file := f"{stem}{os.sep}__init__.py"):
            package = ModuleSpec(fullname, SourceFileLoader(fullname, file), origin=file, is_package=True)
            package.submodule_search_locations = [stem]
            return _located(package)
        found = super().find_spec(fullname, target)
        if found is None and self._archive is not None:
            found = self._archive.find_spec(fullname, target)
        return found


def _located(spec: ModuleSpec) -> ModuleSpec:
    """Let a module have its origin as its file; return the specification."""
    spec.has_location = True
    return spec


class First:
    """Asks the finder of a folder of this package before any other; it stands in `sys.meta_path`.

    A tool may put a path hook in front of ours later, and let Python forget the finders of all folders.
    """

    def __init__(self, hook: Callable[[str], Finder]) -> None:
        self._hook = hook
        self._finders: dict[str, Finder] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the specification of a module of Whorl's; None for any other, and if there is none."""
        if not path or not name.startswith("whorl."):
            return None
        finder = self._finders.get(path[0])
        if finder is None:
            try:
                finder = self._finders[path[0]] = self._hook(path[0])
            except ImportError:
                return None
        return finder.find_spec(name, target)

    def invalidate_caches(self) -> None:
        """Look at the folders anew."""
        for finder in list(self._finders.values()):
            finder.invalidate_caches()


def path_hook_of(package: str, shared_object: ModuleType | None) -> Callable[[str], Finder]:
    """Return the function for `sys.path_hooks` that gives the folders of this package a finder.

    It is a function, since tools read the names of path hooks.
    """

    def path_hook_for_whorl(path: str) -> Finder:
        if path != package and not path.startswith(f"{package}{os.sep}"):
            raise ImportError("not a folder of Whorl's", path=path)
        archive = _finder_of_archive(path, path_hook_for_whorl)
        if archive is None and not os.path.isdir(path):
            raise ImportError("no folder", path=path)
        return Finder(path, shared_object, archive)

    return path_hook_for_whorl


def _finder_of_archive(path: str, ours: Any) -> Any:
    """Return what another path hook finds modules with: a bundler has uncompiled ones in an archive."""
    for hook in sys.path_hooks:
        if hook is not ours:
            try:
                found = hook(path)
            except ImportError:
                continue
            return None if isinstance(found, FileFinder) else found
    return None


NOT_ASKED_FOR = (
    "Whorl runs uncompiled here, as plain Python, and several times slower than compiled. Install a wheel, "
    "or install it where there is a C compiler. If you want it uncompiled, set WHORL_BUILD=pure."
)


def is_asked_for(environment: Mapping[str, str]) -> bool:
    """Return whether somebody wants Whorl to run uncompiled: who installed it, or who runs it."""
    try:
        import_module("whorl.uncompiled")
    except ModuleNotFoundError:
        return environment.get("WHORL_BUILD") == "pure"
    return True


def install() -> None:
    """Let Python find the modules here. Warns if they are uncompiled, and nobody asked for that."""
    shared_object: ModuleType | None
    try:
        import whorl._compiled as shared_object
    except ModuleNotFoundError as error:
        if error.name != "whorl._compiled":
            raise
        shared_object = None
    package = os.path.dirname(__file__)
    hook = path_hook_of(package, shared_object)
    sys.path_hooks.insert(0, hook)
    sys.meta_path.insert(0, First(hook))
    for path in list(sys.path_importer_cache):
        if path == package or path.startswith(f"{package}{os.sep}"):
            del sys.path_importer_cache[path]
    if shared_object is None and not is_asked_for(os.environ):
        warnings.warn(NOT_ASKED_FOR, RuntimeWarning, stacklevel=4)  # the line that imports Whorl


install()
