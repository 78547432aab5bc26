"""Whorl's modules are found by a finder of its own; compiled ones import each other by their own function."""

from __future__ import annotations

import ctypes
import importlib
import importlib._bootstrap  # type: ignore[import-not-found]
import os
import pkgutil
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib.machinery import FileFinder, ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import whorl
from build_tools.sources import SOURCES
from whorl.compiled_modules import LOADERS, CompiledLoader, Finder, First, path_hook_of

only_compiled = pytest.mark.skipif(not whorl.compiled, reason="about what is compiled")
MODULES = [item.name for item in pkgutil.walk_packages(whorl.__path__, "whorl.")]

# A module that lets a test know that it is being imported, and waits.
SLOW = """
import sys
test = sys.modules["slowly_imported_test"]
test.begun.set()
assert test.may_go_on.wait(60)
complete = True
"""


@pytest.fixture
def imported_by_name() -> Callable[[str], ModuleType]:
    """Return the function by which compiled modules import each other."""
    from whorl import _compiled

    function = ctypes.PyDLL(_compiled.__file__).whorl_import_module
    function.restype = ctypes.py_object
    return lambda name: function(name.encode())


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the events of the slow module, which can be imported."""
    test: Any = ModuleType("slowly_imported_test")
    test.begun, test.may_go_on = threading.Event(), threading.Event()
    monkeypatch.setitem(sys.modules, test.__name__, test)
    (tmp_path / "slowly_imported.py").write_text(SLOW)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "slowly_imported", raising=False)
    return test


@only_compiled
def test_a_module_that_was_imported_is_given(imported_by_name: Callable[[str], ModuleType]) -> None:
    assert imported_by_name("whorl.core.loop.loop") is sys.modules["whorl.core.loop.loop"]


@only_compiled
def test_another_module_is_imported(
    imported_by_name: Callable[[str], ModuleType], slow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow.may_go_on.set()
    module = imported_by_name("slowly_imported")
    monkeypatch.delitem(sys.modules, "slowly_imported")
    assert module.complete


@only_compiled
def test_a_module_that_does_not_exist_is_an_error(imported_by_name: Callable[[str], ModuleType]) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'whorl\.no_module'"):
        imported_by_name("whorl.no_module")


@only_compiled
def test_a_module_without_a_spec_is_given(
    imported_by_name: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "made_by_hand", made := ModuleType("made_by_hand"))
    assert imported_by_name("made_by_hand") is made


@only_compiled
def test_a_module_that_another_thread_imports_is_waited_for(
    imported_by_name: Callable[[str], ModuleType], slow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_import = importlib._bootstrap._lock_unlock_module

    def let_it_go_on(name: str) -> None:
        slow.may_go_on.set()
        wait_for_import(name)

    monkeypatch.setattr(importlib._bootstrap, "_lock_unlock_module", let_it_go_on)
    thread = threading.Thread(target=importlib.import_module, args=("slowly_imported",))
    thread.start()
    assert slow.begun.wait(60)
    module = imported_by_name("slowly_imported")
    is_complete = hasattr(module, "complete")
    slow.may_go_on.set()
    thread.join()
    monkeypatch.delitem(sys.modules, "slowly_imported")
    assert is_complete


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_found_as_python_would_find_it(name: str) -> None:
    folder = os.path.join(os.path.dirname(whorl.__file__), *name.split(".")[1:-1])
    own, expected = Finder(folder).find_spec(name), FileFinder(folder, *LOADERS).find_spec(name)
    assert own is not None
    assert expected is not None
    for each in ("name", "origin", "submodule_search_locations", "cached", "has_location", "parent"):
        assert getattr(own, each) == getattr(expected, each), each
    assert type(own.loader) is type(expected.loader)
    assert own.loader.get_filename(name) == expected.origin  # type: ignore[union-attr]


def test_a_folder_of_another_package_is_left_to_python(tmp_path: Path) -> None:
    hook = path_hook_of(str(tmp_path / "whorl"), None)
    for path in (str(tmp_path), str(tmp_path / "whorl-2"), ""):
        with pytest.raises(ImportError, match="not a folder of Whorl's"):
            hook(path)


def test_a_folder_in_an_archive_is_left_to_python(tmp_path: Path) -> None:
    package = tmp_path / "whorl"
    with pytest.raises(ImportError, match="no folder"):
        path_hook_of(str(package), None)(str(package / "core"))


def test_a_module_that_a_bundler_has_in_an_archive_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, spec = tmp_path / "whorl", ModuleSpec("whorl.packed", None)

    class Archive:
        def find_spec(self, name: str, target: object = None) -> ModuleSpec | None:
            return spec if name == "whorl.packed" else None

    package.mkdir()  # for the shared object alone
    monkeypatch.setattr(sys, "path_hooks", [lambda path: Archive()])
    finder = path_hook_of(str(package), None)(str(package))
    assert finder.find_spec("whorl.packed") is spec
    assert finder.find_spec("whorl.other") is None


def test_the_path_hook_has_a_name_as_tools_expect() -> None:
    assert all(hasattr(hook, "__name__") for hook in sys.path_hooks)


def test_the_finder_comes_first_if_another_tool_takes_the_folders_of_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = whorl.__path__[0]
    hook = path_hook_of(folder, getattr(whorl, "_compiled", None))
    monkeypatch.setattr(sys, "path_importer_cache", {})
    monkeypatch.setattr(sys, "path_hooks", [FileFinder.path_hook(*LOADERS), *sys.path_hooks])
    first = First(hook)
    spec = first.find_spec("whorl.core.callback", [os.path.join(folder, "core")])
    assert spec is not None
    assert isinstance(spec.loader, CompiledLoader if whorl.compiled else SourceFileLoader)
    assert first.find_spec("other", [folder]) is None
    assert any(isinstance(one, First) for one in sys.meta_path)


@only_compiled
@pytest.mark.parametrize("forgets", [False, True], ids=["as it is", "Python's finders forgotten"])
def test_every_finder_along_a_path_finds_the_compiled_modules(
    forgets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if forgets:
        monkeypatch.setattr(sys, "path_importer_cache", {})
    spec = PathFinder.find_spec("whorl.core.callback", [os.path.join(whorl.__path__[0], "core")])
    assert spec is not None
    assert isinstance(spec.loader, CompiledLoader)


@only_compiled
def test_a_compiled_module_has_a_file() -> None:
    from whorl import _compiled
    from whorl.core.loop import loop

    assert loop.__file__ == _compiled.__file__
    assert loop.__spec__ is not None
    assert loop.__spec__.has_location


def imported_uncompiled(folder: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Import a copy of Whorl's sources in `folder`, from a program there."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.pxd", "*.h")
    if not (folder / "whorl").exists():
        shutil.copytree(SOURCES / "whorl", folder / "whorl", ignore=ignored)
    (folder / "program.py").write_text("import whorl\nprint(whorl.compiled)\n")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("WHORL_")}
    return subprocess.run(
        [sys.executable, *options, "program.py"],
        cwd=folder,
        env={**environment, "PYTHONPATH": "", **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_whorl_that_runs_uncompiled_unasked_warns_once_at_the_import(tmp_path: Path) -> None:
    answer = imported_uncompiled(tmp_path)
    assert answer.stdout == "False\n"
    assert answer.stderr.count("RuntimeWarning: Whorl runs uncompiled here") == 1
    assert "program.py:1: RuntimeWarning" in answer.stderr


def test_whorl_that_is_asked_to_run_uncompiled_does_not_warn(tmp_path: Path) -> None:
    answer = imported_uncompiled(tmp_path, "-W", "error", WHORL_BUILD="pure")
    assert (answer.stdout, answer.stderr) == ("False\n", "")
    (tmp_path / "whorl" / "uncompiled.py").touch()  # as an installation that was asked for has it
    answer = imported_uncompiled(tmp_path, "-W", "error")
    assert (answer.stdout, answer.stderr) == ("False\n", "")


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
