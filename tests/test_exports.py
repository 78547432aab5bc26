"""Each package exports exactly the names in its `__all__`."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import whorl
from tests.children import bare_environment
from tests.source_trees import Source

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


# The modules that a program for asyncio starts without, and the standard ones that asyncio has not imported.
LATE = """
whorl.aio.connections whorl.aio.futures.future whorl.aio.sockets whorl.aio.streams whorl.aio.threads.executor
whorl.aio.threads.executor_job whorl.aio.tls whorl.aio.transports.byte_transport whorl.core.kernel.per_socket
whorl.handles.process whorl.handles.streams concurrent.futures.thread importlib.util queue
whorl.aio.connections.datagram_transport whorl.aio.runners.compiled_tasks_loop whorl.aio.runners.driver
whorl.aio.runners.guest whorl.aio.runners.many_loops whorl.aio.runners.policy whorl.aio.transports.datagram
whorl.core.file_system_status whorl.core.metrics whorl.core.recording.task_figures whorl.fs
whorl.handles.datagrams whorl.inspector whorl.sim whorl.substitute ctypes dataclasses termios
""".split()
# What these import looks at asyncio, to notice what a program replaces later.
EARLY = """
whorl.aio.interop.at_import whorl.aio.interop.stock whorl.aio.loop.clock
whorl.aio.loop.event_loop whorl.aio.loop.tasks
""".split()


def imported_after(code: str, names: list[str]) -> list[str]:
    """Return those of the modules that a new process has imported after this code, and asyncio had not."""
    program = (
        f"import asyncio, sys\nbefore = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - before))"
    )
    environment = bare_environment()
    answer = subprocess.check_output([sys.executable, "-c", program], text=True, env=environment)
    return [name for name in names if name in answer.split()]


STARTS = [
    "import whorl",
    "import whorl\nwhorl.new_event_loop().close()",
    "import whorl\nasync def main(): await asyncio.sleep(0)\nwhorl.run(main())",
]


@pytest.mark.parametrize("code", STARTS)
def test_a_program_for_asyncio_starts_without_what_it_seldom_uses(code: str) -> None:
    with contextlib.closing(whorl.new_event_loop()) as loop:
        used = {cls.__module__ for cls in type(loop).__mro__} | {type(loop.create_future()).__module__}
    assert [name for name in imported_after(code, LATE) if name not in used] == []


def test_modules_that_look_at_asyncio_are_imported_at_once() -> None:
    assert imported_after("import whorl", EARLY) == EARLY


@pytest.mark.parametrize("name", whorl.__all__)
def test_each_name_is_there_at_its_first_use(name: str) -> None:
    first = f"import whorl; print({name!r} in dir(whorl))"
    code = f"{first}; from whorl import {name} as it; print(whorl.{name} is it)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["True", "True"]


def test_a_name_that_is_unknown_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'whorl' has no attribute 'Looop'"):
        _ = whorl.Looop  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"module 'whorl\.core' has no attribute 'Looop'"):
        _ = whorl.core.Looop


def test_names_come_late_from_where_type_checkers_look_for_them() -> None:
    face = Source("whorl", Path(whorl.__file__))
    for_types = {item.name for item in face.imports() if item.is_for_types}
    late = {home if home == f"whorl.{name}" else f"{home}.{name}" for name, home in whorl._HOMES.items()}
    assert late == for_types
