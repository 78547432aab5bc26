"""The imports that each package may make, and the modules that may speak to the operating system."""

from __future__ import annotations

import ast
import enum
import fcntl
import graphlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from types import ModuleType

import pytest

from build_tools import extensions, sources
from tests.source_trees import Source, all_sources

pytestmark = pytest.mark.text

# The rooms in the order of the map: each imports only itself and rooms above it.
MAP = (sources.ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
ROOMS = [room.replace("/", ".") for room in re.findall(r"^\| `([\w/]+)/` \|", MAP, re.MULTILINE)]
# What rooms, with the rooms in them, do not import either, though it stands above them.
APART = {
    "core.process": ("core.kernel", "core.pollers"),
    **dict.fromkeys(("inspector.recordings", "inspector.asking", "inspector.views"), ("aio", "handles")),
    "sim": ("handles", "inspector"),
    **dict.fromkeys(
        ("sim.chance", "sim.wire", "sim.files", "sim.checks"), ("aio", "core.kernel", "core.loop")
    ),
}
# The packages above the rooms, and the modules of Whorl that each imports: faces, which show public names,
# and programs.
ABOVE: dict[str, tuple[str, ...]] = {
    "whorl.core": ("whorl.core",),
    "whorl.handles": ("whorl.handles",),
    "whorl.handles.public": ("whorl.handles",),
    "whorl.aio": (),
    "whorl": (
        *("whorl.compiled_modules", "whorl.core", "whorl.handles", "whorl.aio"),
        *("whorl.fs", "whorl.inspector", "whorl.preloading", "whorl.substitute"),
    ),
    "whorl.compiled_modules": (extensions.NAME,),
    "whorl.fs": ("whorl.aio.files",),
    "whorl.__main__": ("whorl.cli", "whorl.launcher"),
    "whorl.cli": ("whorl", "whorl.launcher", "whorl.report", "whorl.inspector", "whorl.sim"),
    "whorl.import_path.uvloop": ("whorl",),
    "whorl.import_path.uvloop.loop": ("whorl", "whorl.aio"),
    "whorl.launcher": ("whorl",),
    "whorl.preloading": ("whorl.aio",),
    "whorl.report": ("whorl",),
    "whorl.sim": ("whorl.sim",),
    "whorl.sim.command": ("whorl.sim",),
    "whorl.sim.hypothesis": ("whorl.sim",),
    "whorl.sim.pytest_plugin": ("whorl.sim",),
    "whorl.substitute": (),
    "whorl.system": (),
}
LARGEST_ROOM = 14  # files
KNOWS_ASYNCIO = ("aio", "whorl.aio", "whorl.import_path", "whorl.launcher", "inspector", "sim", "whorl.sim")
KNOWS_PYTEST = ("whorl.inspector.pytest_plugin", "whorl.sim.pytest_plugin")
KNOWS_HYPOTHESIS = ("whorl.sim.hypothesis",)
KNOWS_EXPORTER = {
    "prometheus_client": ("whorl.inspector.prometheus", "whorl.inspector.views.exposition"),
    "opentelemetry": ("whorl.inspector.opentelemetry",),
}
KNOWS_CLICK = (
    *("whorl.cli", "whorl.__main__"),
    *("whorl.inspector.asking.commands", "whorl.inspector.asking.recording_commands"),
    *("whorl.inspector.view_commands", "whorl.sim.command"),
)
KNOWS_TEXTUAL = ("whorl.inspector.views.live",)

# The names of modules that do I/O which every module may use: constants, types that are not called,
# exceptions, and functions that only compute.
GUARDED: dict[ModuleType, frozenset[str]] = {
    os: frozenset(
        {"fsencode", "fsdecode", "fspath", "strerror", "cpu_count", "process_cpu_count", "environ"}
    ),
    socket: frozenset(
        {"inet_pton", "inet_ntop", "inet_aton", "inet_ntoa", "htons", "ntohs", "htonl", "ntohl"}
    ),
    select: frozenset(),
    fcntl: frozenset(),
    time: frozenset(),
    signal: frozenset({"default_int_handler", "strsignal", "valid_signals"}),
    subprocess: frozenset(),
}
GUARDED_NAMES = {module.__name__: module for module in GUARDED}
# The packages and modules that speak to the system.
MAY_CALL = (
    *("whorl.core.kernel", "whorl.core.process.host"),
    "whorl.inspector",  # which observes the process, and is no part of a loop's world
    *("whorl.launcher", "whorl.report", "whorl.substitute", "whorl.system"),
    "whorl.aio.runners.many_loops",  # which counts the cores
    # They stand in the place of Python's functions, take constants, or measure how long a run takes.
    *("whorl.sim.command", "whorl.sim.files.inodes", "whorl.sim.files.unix"),
    *("whorl.sim.patches.clocks", "whorl.sim.patches.descriptors", "whorl.sim.patches.files"),
    *("whorl.sim.patches.sockets", "whorl.sim.process.file_calls", "whorl.sim.process.socket"),
    *("whorl.sim.running.check", "whorl.sim.running.shrink", "whorl.sim.world.turns"),
)

SOURCES = pytest.mark.parametrize("source", all_sources(), ids=lambda source: source.name)


def room_of(name: str) -> str | None:
    """Return the room that a module belongs to; None if it lies above the rooms."""
    if name in ABOVE:
        return None
    name = name.removeprefix("whorl.")
    return name if name in ROOMS else name.rpartition(".")[0]


def module_of(name: str) -> str:
    """Return the module that an imported name comes from: it, or what contains it."""
    names = {source.name for source in all_sources()} | {extensions.NAME}
    return name if name in names else name.rpartition(".")[0]


def may_import(name: str, imported: str) -> bool:
    """Return whether the module called `name` may import or cimport the module called `imported`."""
    if name in ABOVE:
        return any(imported == part or imported.startswith(part + ".") for part in ABOVE[name])
    room, other = room_of(name), room_of(imported)
    apart = [part for of, parts in APART.items() if is_in(room, (of,)) for part in parts]
    return other == room or (other in ROOMS[: ROOMS.index(str(room))] and not is_in(other, apart))


def is_in(name: str | None, parts: Iterable[str]) -> bool:
    """Return whether a room or a module is one of these, or lies in one."""
    return any(f"{name}.".startswith(f"{part}.") for part in parts)


@SOURCES
def test_a_module_imports_only_rooms_below_its_own(source: Source) -> None:
    for item in source.imports():
        if item.name.split(".")[0] == "whorl":
            assert may_import(source.name, module_of(item.name)), (
                f"{source.path}:{item.line}: imports {item.name}"
            )


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_of_the_map_has_few_files(room: str) -> None:
    folder = sources.SOURCES / "whorl" / room.replace(".", "/")
    assert 0 < len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) <= LARGEST_ROOM


@pytest.mark.parametrize(
    ("name", "imported"),
    [
        ("whorl.core.limits", "whorl.core.kernel.kernel"),
        ("whorl.handles.requests", "whorl.aio.loop.tasks"),
        ("whorl.sim.world.turns", "whorl.inspector.inspector"),  # apart
        ("whorl.sim.wire.line", "whorl.core.kernel.kernel"),
    ],
)
def test_a_room_may_not_import(name: str, imported: str) -> None:
    assert not may_import(name, imported)


@SOURCES
def test_a_module_imports_only_the_standard_library_besides(source: Source) -> None:
    for item in source.imports():
        package = item.name.split(".")[0]
        where = f"{source.path}:{item.line}: imports {item.name}"
        if package == "asyncio":
            assert (room_of(source.name) or source.name).startswith(KNOWS_ASYNCIO), where
        elif package == "click":
            assert source.name in KNOWS_CLICK, where
        elif package == "pytest":
            assert source.name in KNOWS_PYTEST, where
        elif package == "hypothesis":
            assert source.name in KNOWS_HYPOTHESIS, where
        elif package in ("textual", "rich"):  # which Textual needs
            assert source.name in KNOWS_TEXTUAL, where
        elif package in KNOWS_EXPORTER:
            assert source.name in KNOWS_EXPORTER[package], where
        elif package == "cython":
            assert source.is_compiled, where
        else:
            known = package in {"whorl", *sys.stdlib_module_names}
            assert known or (item.is_for_types and package == "_typeshed"), where  # a module of type checkers


@SOURCES
def test_declarations_cimport_only_rooms_below_their_own(source: Source) -> None:
    assert [name for name in source.cimports() if not may_import(source.name, name)] == []


def test_modules_import_each_other_in_no_circle() -> None:
    graph = {source.name: needed_by(source) for source in all_sources()}
    graphlib.TopologicalSorter(graph).prepare()  # raises a CycleError that names the circle


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("whorl.aio.loop.event_loop", "whorl.aio.loop.lifecycle"),
        ("whorl.core.loop.wakeup", "whorl.core.process.host"),  # for types
        ("whorl.core.pollers.choose", "whorl.core.pollers.selector"),  # late
        ("whorl.aio.loop.tasks", "whorl.aio.loop.lifecycle"),  # by cimport only
    ],
)
def test_every_kind_of_import_may_close_a_circle(name: str, needed: str) -> None:
    assert needed in needed_by(next(source for source in all_sources() if source.name == name))


def needed_by(source: Source) -> set[str]:
    """Return Whorl's modules that a module imports in any way, or cimports in its declarations."""
    imported = (item.name for item in source.imports() if item.name.split(".")[0] == "whorl")
    return {module_of(name) for name in imported} | set(source.cimports())


@SOURCES
def test_only_the_kernel_and_the_host_speak_to_the_system(source: Source) -> None:
    if not is_in(source.name, MAY_CALL):
        found = guarded_uses(source.tree)
        assert [f"{source.path}:{line}: {module.__name__}.{name}" for line, module, name in found] == []


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.read(3, 10)",
        "import os as _os\n_os.close(3)",
        "import socket\nsocket.socket()",
        "import socket\ns = socket.socketpair\n",
        "from socket import socket as make\nmake()",
        "from os import read",
        "import select\nselect.epoll()",
        "import time\ntime.monotonic()",
        "def f():\n    import fcntl\n    fcntl.fcntl(0, 1)",
        "import asyncio, signal\nsignal.signal(2, None)",
    ],
)
def test_system_calls_are_found_in(text: str) -> None:
    assert len(list(guarded_uses(ast.parse(text)))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "import os\nx: os.PathLike = os.fspath('x') + os.sep",
        "import socket\ndef f(s: socket.socket): raise socket.gaierror(socket.EAI_AGAIN)",
        "from socket import AF_INET, socket, AddressFamily\nisinstance(1, socket)\nAddressFamily(2)",
        "import errno\nerrno.EAGAIN",
        "import os.path\nos.path.join('a', 'b')",
    ],
)
def test_constants_types_and_computations_are_no_system_calls_in(text: str) -> None:
    assert list(guarded_uses(ast.parse(text))) == []


def guarded_uses(tree: ast.AST) -> Iterator[tuple[int, ModuleType, str]]:
    """Yield each use of a guarded module that may do more than name a constant or a type."""
    modules, names = guarded_imports(tree)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=origin) if origin in GUARDED_NAMES:
                uses = [(GUARDED_NAMES[origin], alias.name, False) for alias in node.names]
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in modules:
                uses = [(modules[owner], name, id(node) in called)]
            case ast.Name(id=local) if local in names and id(node) in called and is_type(*names[local]):
                uses = [(*names[local], True)]
            case _:
                continue
        for module, name, is_called in uses:
            if not is_harmless(module, name, is_called):
                yield node.lineno, module, name


def guarded_imports(tree: ast.AST) -> tuple[dict[str, ModuleType], dict[str, tuple[ModuleType, str]]]:
    """Return the local names of guarded modules, and of objects imported out of them."""
    modules: dict[str, ModuleType] = {}
    names: dict[str, tuple[ModuleType, str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if (top := alias.name.split(".")[0]) in GUARDED_NAMES:
                    modules[alias.asname or top] = GUARDED_NAMES[top]
        elif isinstance(node, ast.ImportFrom) and node.module in GUARDED_NAMES:
            for alias in node.names:
                names[alias.asname or alias.name] = GUARDED_NAMES[node.module], alias.name
    return modules, names


def is_type(module: ModuleType, name: str) -> bool:
    return isinstance(getattr(module, name, None), type)


def is_harmless(module: ModuleType, name: str, is_called: bool) -> bool:
    """Return whether using this name of `module` cannot speak to the system."""
    if name in GUARDED[module]:
        return True
    if not hasattr(module, name):
        return name.isupper()  # what only a later Python has: a constant, or it may do anything
    value = getattr(module, name)
    if isinstance(value, type):
        return not is_called or issubclass(value, BaseException | enum.Enum)
    return not callable(value)
