"""Who may import whom, and who may speak to the operating system."""

from __future__ import annotations

import ast
import enum
import fcntl
import graphlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from types import ModuleType

import pytest

from build_tools import sources
from tests.source_trees import Source, all_sources

# Each room, and the rooms besides itself that it may import. The first that fits a module's name counts.
ROOMS: dict[str, tuple[str, ...]] = {
    "whorl.core": (),
    "whorl.handles": ("whorl.core",),
    "whorl.aio": ("whorl.core", "whorl.handles"),
    "whorl.__main__": ("whorl.cli",),
    "whorl.cli": ("whorl", "whorl.launcher", "whorl.report"),
    "whorl.launcher": ("whorl",),
    "whorl.report": ("whorl",),
    "whorl.system": (),
    "whorl": ("whorl.core", "whorl.handles", "whorl.aio"),
}
KNOWS_ASYNCIO = ("whorl.aio", "whorl", "whorl.launcher")
KNOWS_CLICK = ("whorl.cli", "whorl.__main__")

# What is left to everybody of the modules that do I/O: constants, types that are not called, exceptions, and
# functions that only compute.
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
MAY_CALL: dict[str, tuple[ModuleType, ...]] = {
    "whorl.core.kernel": (os, select, signal, fcntl, time),
    "whorl.core.sockets": (os, socket),
    "whorl.core.datagrams": (socket,),
    "whorl.core.notify": (os,),
    "whorl.core.passing": (os, socket),
    "whorl.core.terminal": (os, fcntl),
    "whorl.core.files": (os, fcntl, select),
    "whorl.core.host": (os, socket, signal, fcntl, subprocess),
    "whorl.launcher": (os,),
    "whorl.report": (os,),
    "whorl.system": (os, time),
    "whorl.uring": (os,),
}

SOURCES = pytest.mark.parametrize("source", all_sources(), ids=lambda source: source.name)


def room_of(name: str) -> str:
    """The room that a module, or a name in it, belongs to."""
    return next(room for room in ROOMS if name == room or name.startswith(room + "."))


def module_of(name: str) -> str:
    """The module that an imported name comes from: it, or what contains it."""
    names = {source.name for source in all_sources()}
    return name if name in names else name.rpartition(".")[0]


@SOURCES
def test_a_module_imports_only_rooms_below_its_own(source: Source) -> None:
    room = room_of(source.name)
    for item in source.imports():
        if item.name.split(".")[0] == "whorl":
            imported = room_of(module_of(item.name))
            assert imported == room or imported in ROOMS[room], (
                f"{source.path}:{item.line}: imports {item.name}"
            )


@SOURCES
def test_a_module_imports_only_the_standard_library_besides(source: Source) -> None:
    for item in source.imports():
        package = item.name.split(".")[0]
        where = f"{source.path}:{item.line}: imports {item.name}"
        if package == "asyncio":
            assert room_of(source.name) in KNOWS_ASYNCIO, where
        elif package == "click":
            assert source.name in KNOWS_CLICK, where
        elif package == "cython":
            assert source.is_compiled, where
        else:
            known = package in {"whorl", *sys.stdlib_module_names}
            assert known or (item.is_for_types and package == "_typeshed"), where  # a module of type checkers


@pytest.mark.parametrize("module", sources.compiled_modules(), ids=lambda module: module.name)
def test_declarations_cimport_only_rooms_below_their_own(module: sources.Module) -> None:
    room = room_of(module.name)
    for path in sources.inputs(module):
        cimported = room_of(".".join(path.relative_to(module.folder).with_suffix("").parts))
        assert cimported == room or cimported in ROOMS[room], f"{module.name} needs {path}"


def test_modules_import_each_other_in_no_circle() -> None:
    graph = {source.name: needed_by(source) for source in all_sources()}
    graphlib.TopologicalSorter(graph).prepare()  # raises a CycleError that names the circle


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("whorl.aio.loop", "whorl.aio.running"),
        ("whorl.core.wakeup", "whorl.core.host"),  # for types
        ("whorl.core.choose_poller", "whorl.core.uring_poller"),  # late
        ("whorl.aio.tasks", "whorl.aio.running"),  # by cimport only
    ],
)
def test_every_kind_of_import_may_close_a_circle(name: str, needed: str) -> None:
    assert needed in needed_by(next(source for source in all_sources() if source.name == name))


def needed_by(source: Source) -> set[str]:
    """The modules of ours that a module imports in any way, and those that its declarations cimport."""
    imported = (item.name for item in source.imports() if item.name.split(".")[0] == "whorl")
    return {module_of(name) for name in imported} | set(source.cimports())


@SOURCES
def test_only_the_kernel_and_the_host_speak_to_the_system(source: Source) -> None:
    allowed = MAY_CALL.get(source.name, ())
    violations = [
        f"{source.path}:{line}: {module.__name__}.{name}"
        for line, module, name in guarded_uses(source.tree)
        if module not in allowed
    ]
    assert violations == []


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
    """Each use of something in a guarded module that may do more than name a constant or a type."""
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
    """The local names of guarded modules, and of what is imported out of them."""
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
    """Whether using this name of `module` cannot speak to the system."""
    if name in GUARDED[module]:
        return True
    value = getattr(module, name, None)
    if isinstance(value, type):
        return not is_called or issubclass(value, BaseException | enum.Enum)
    return not callable(value)
