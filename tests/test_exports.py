"""Each package exports exactly the names in its `__all__`."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import whorl

PACKAGES = ["whorl", *(item.name for item in pkgutil.walk_packages(whorl.__path__, "whorl.") if item.ispkg)]


def exports_of(package: ModuleType) -> list[str]:
    """Return the list, which is empty for a package that is only a folder."""
    return list(getattr(package, "__all__", []))


def public_names(package: ModuleType) -> set[str]:
    """Return the names that do not start with an underscore, apart from the modules in the package."""
    modules = {item.name for item in pkgutil.iter_modules(package.__path__)}
    names = {name for name in vars(package) if not name.startswith("_") and name != "annotations"}
    return {name for name in names if name not in modules or not isinstance(vars(package)[name], ModuleType)}


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_exports_its_public_names(name: str) -> None:
    package = importlib.import_module(name)
    # Dunder names and whole rooms are public only where the list says so.
    listed = {entry for entry in exports_of(package) if not isinstance(getattr(package, entry), ModuleType)}
    assert {entry for entry in listed if not entry.startswith("_")} == public_names(package)


@pytest.mark.parametrize("name", PACKAGES)
def test_the_exports_are_sorted_and_named_once(name: str) -> None:
    exports = exports_of(importlib.import_module(name))
    assert exports == sorted(set(exports))


def test_a_program_for_asyncio_starts_without_the_public_handles() -> None:
    code = "import sys, whorl; print([f'whorl.handles.{name}' in sys.modules for name in ('public', 'fs')])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[False, False]\n"


def test_the_handles_are_listed_before_their_first_use() -> None:
    code = "from whorl import handles; print('TCP' in dir(handles), handles.Timer.__name__)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["True", "Timer"]


def test_a_name_that_is_no_handle_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'whorl\.handles' has no attribute 'Tcp'"):
        _ = whorl.handles.Tcp  # type: ignore[attr-defined]
