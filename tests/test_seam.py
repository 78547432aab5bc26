"""The simulator uses the loops below it as the page of the seam says, and by public names only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.source_trees import Source, all_sources
from tests.test_layers import module_of
from whorl.aio.runners import seam

pytestmark = pytest.mark.text

SIMULATOR = [source for source in all_sources() if source.name.startswith("whorl.sim")]
BELOW = [
    source for source in all_sources() if source.name.startswith(("whorl.core", "whorl.handles", "whorl.aio"))
]
# Names that are asyncio's, and that Whorl's classes have too.
ASYNCIO = {"_check_closed", "_get_running_loop", "_log_destroy_pending", "_run", "_set_running_loop"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@cache
def private_names(tree: ast.AST) -> set[str]:
    """Return the private attributes and methods that a module or a class defines."""
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                names.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return set(filter(is_private, names))


def classes_in(sources: list[Source]) -> dict[str, ast.ClassDef]:
    nodes = (node for source in sources for node in ast.walk(source.tree))
    return {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}


CLASSES_BELOW = classes_in(BELOW)
CLASSES = {**CLASSES_BELOW, **classes_in(SIMULATOR)}
PRIVATE_BELOW = {name for source in BELOW for name in private_names(source.tree)}


def inherited(kind: ast.ClassDef) -> set[str]:
    """Return the private names that a class has of classes below the simulator."""
    found, bases = set(), [kind]
    while bases:
        base = bases.pop()
        if base is CLASSES_BELOW.get(base.name):
            found |= private_names(base)
        names = [each.id for each in base.bases if isinstance(each, ast.Name)]
        bases += [CLASSES[name] for name in names if name in CLASSES and name != base.name]
    return found


def foreign_names(tree: ast.AST, own: set[str]) -> Iterator[tuple[int, str]]:
    """Yield each private name of the rooms below that a module uses, calls or overrides.

    `own` are the private names that its room defines.
    """
    for kind in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        taken = inherited(kind)
        for node in ast.walk(kind):
            match node:
                case ast.FunctionDef(name=name) if name in taken:
                    yield node.lineno, name
                case ast.Attribute(value=ast.Name(id="self") | ast.Call(), attr=name) if name in taken:
                    yield node.lineno, name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in PRIVATE_BELOW - own:
            yield node.lineno, node.attr


def test_the_simulator_imports_the_modules_that_the_seam_names() -> None:
    imported = {module_of(item.name) for source in SIMULATOR for item in source.imports()}
    imported |= {name for source in SIMULATOR for name in source.cimports()}
    below = {name.removeprefix("whorl.") for name in imported if name in {source.name for source in BELOW}}
    assert below - {"core", "core.timers"} == set(
        re.findall(r"`((?:core|handles|aio)\.[\w.]+)`", str(seam.__doc__))
    )


@pytest.mark.parametrize("source", SIMULATOR, ids=lambda source: source.name)
def test_the_simulator_uses_no_private_name_of_rooms_below(source: Source) -> None:
    room = [each for each in SIMULATOR if each.package == source.package]
    own = {name for each in room for name in private_names(each.tree)}
    assert [each for each in foreign_names(source.tree, own) if each[1] not in ASYNCIO] == []


@pytest.mark.parametrize(
    "text",
    [
        "loop._poller",
        "host.loop._timer_queue.timers()",
        "class Mine(SeamLoop):\n    def _begin_run(self): pass",
        "class Mine(EventLoop):\n    def post(self): return super()._post_from_any_thread(1)",
        "class Mine(SimLoop):\n    def f(self): self._time_replaced = False",
    ],
)
def test_private_names_are_found_in(text: str) -> None:
    assert list(foreign_names(ast.parse(text), set()))
