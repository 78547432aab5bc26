"""The callable surface: functions, classes, the names of a class, the parameters of a function."""

from __future__ import annotations

import ast
import enum
import inspect
import sys
import types
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import whorl
from build_tools.sources import SOURCES
from whorl.core.handle import Handle

#: They act on the whole process, on descriptors that are not theirs, or do not come back by design.
LEFT_OUT = {
    "_run_turns",
    "close_descriptor",
    "raise_signal",
    "epoll_wait",
    "run_app",
    "_open",
    "_rebuild",
    "_closed",
    "_thread_id",
    "_stopping",
    "__class__",
}
#: They act on other processes, or are there to be derived from.
LEFT_OUT_OF_HANDLES = {"kill", "StreamHandle"}
SPECIAL = {"__repr__", "__lt__", "__eq__", "__hash__", "__init__", "__len__", "__del__"}


def public(module: types.ModuleType) -> Iterator[Any]:
    """Yield the functions and classes of a module, and of the modules that are among its public names."""
    for name in sorted(set(module.__all__) - LEFT_OUT_OF_HANDLES):
        item = getattr(module, name)
        if isinstance(item, types.ModuleType):
            yield from public(item)
        elif callable(item) and not isinstance(item, enum.EnumType):
            yield item


PUBLIC = list(public(whorl.handles))
HANDLES = [item for item in PUBLIC if isinstance(item, type) and issubclass(item, Handle)]
REQUESTS = [item for item in PUBLIC if item not in HANDLES]


@cache
def names_of(kind: type, only_public: bool) -> list[str]:
    """Return the names that may be called or read on an object of this kind."""
    names = [name for name in dir(kind) if name not in LEFT_OUT]
    if only_public:
        return [name for name in names if not name.startswith("_") or name in ("__repr__", "__init__")]
    return [name for name in names if not name.startswith("__") or name in SPECIAL]


class Parameters(NamedTuple):
    """The names of what a function takes."""

    by_place: list[str]
    by_name: list[str]


UNKNOWN = Parameters(["anything"], [])


@cache
def parameters(kind: type, name: str) -> Parameters:
    """Return the parameters of a method, from its signature or else from the source of its class."""
    for owner in kind.__mro__:
        if name in vars(owner) and owner.__module__.startswith("whorl."):
            found = in_source(owner, name)
            if found is not None:
                return Parameters(found.by_place[1:], found.by_name)
    found = parameters_of(getattr(kind, name, None))
    return Parameters(found.by_place[1:], found.by_name) if found is not UNKNOWN else found


def parameters_of(function: Any) -> Parameters:
    """Return the parameters of a function, if it has a signature."""
    try:
        found = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        return UNKNOWN
    by_name = [item.name for item in found if item.kind is item.KEYWORD_ONLY]
    return Parameters([item.name for item in found if item.name not in by_name], by_name)


def in_source(owner: type, name: str) -> Parameters | None:
    """Return the parameters of a method from its source: compiled, those of `__init__` are not shown."""
    for node in classes_in(owner.__module__).get(owner.__name__, ()):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            found = node.args
            return Parameters([item.arg for item in found.args], [item.arg for item in found.kwonlyargs])
    return None


@cache
def classes_in(module: str) -> dict[str, list[ast.stmt]]:
    """Return the bodies of the classes of a module."""
    source = SOURCES / (module.replace(".", "/") + ".py")
    if not source.is_file():
        source = Path(sys.modules[module].__file__ or "").with_suffix(".py")
    if not source.is_file():
        return {}
    nodes = ast.parse(source.read_text(encoding="utf-8")).body
    return {node.name: node.body for node in nodes if isinstance(node, ast.ClassDef)}
