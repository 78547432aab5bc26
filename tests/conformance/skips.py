"""The checked-in list of skipped tests, and the proof that each sets or mocks the private name it gives."""

import ast
import inspect
import sys
import tomllib
import unittest
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

LIST = Path(__file__).with_name("skips.toml")

# The methods that unittest runs around every test method.
FIXTURES = ("setUpClass", "setUp", "asyncSetUp", "tearDown", "asyncTearDown", "tearDownClass")

# Public names that stand for an inside of asyncio's all the same: Python 3.14 removed child watchers, and a
# loop that watches its children by itself asks none. `connection_made` is that of asyncio.sslproto, which no
# connection of ours goes through.
REPLACED = {"set_child_watcher", "connection_made"}


@dataclass(frozen=True)
class Skip:
    """Tests that are not run, because they set or mock `name`, a private name of asyncio's."""

    pattern: str  # Module.Class.method; only the class may hold wildcards.
    name: str
    since: tuple[int, ...] = (3, 0)
    until: tuple[int, ...] = (4, 0)

    @property
    def module(self) -> str:
        return self.pattern.split(".")[0]

    def applies_to(self, version: tuple[int, ...]) -> bool:
        return self.since <= version and version[: len(self.until)] <= self.until

    def matches(self, test_id: str) -> bool:
        return fnmatchcase(test_id, self.pattern)


def read(path: Path = LIST) -> list[Skip]:
    """Read the list; it holds one table per module, in it one entry per Class.method."""
    skips = []
    for module, entries in tomllib.loads(path.read_text()).items():
        for test, entry in entries.items():
            given = {"name": entry} if isinstance(entry, str) else entry
            bounds = {key: _version(given[key]) for key in ("since", "until") if key in given}
            skips.append(Skip(f"{module}.{test}", given["name"], **bounds))
    for skip in skips:
        _check_form(skip)
    return skips


def for_module(module: str, version: tuple[int, ...] = sys.version_info[:3]) -> list[Skip]:
    return [skip for skip in read() if skip.module == module and skip.applies_to(version)]


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _check_form(skip: Skip) -> None:
    parts = skip.pattern.split(".")
    if len(parts) != 3 or any(wildcard in parts[0] + parts[2] for wildcard in "*?["):
        raise ValueError(f"{skip.pattern}: a skip names one test method, not a module or a class")
    if skip.name in REPLACED:
        return
    if not skip.name.startswith("_") or skip.name.startswith("__"):
        raise ValueError(f"{skip.pattern}: {skip.name} is not a private name")


def complaints(skips: Iterable[Skip], tests: dict[str, unittest.TestCase]) -> list[str]:
    """List the skips that no longer hold: no test is meant, or the test leaves the private name alone."""
    found = []
    for skip in skips:
        meant = [test for test_id, test in tests.items() if skip.matches(test_id)]
        if not meant:
            found.append(f"{skip.pattern}: there is no such test")
        found += [
            f"{skip.pattern}: {test.id()} neither sets nor mocks {skip.name}"
            for test in meant
            if skip.name not in names_touched(test)
        ]
    return found


def names_touched(test: unittest.TestCase) -> set[str]:
    """Collect the private names that a test, its fixtures or its helpers set, mock, override or call."""
    touched: set[str] = set()
    for node in _reachable(type(test), (test._testMethodName, *FIXTURES)):
        touched.update(_names_set_in(node))
    return touched


def _reachable(cls: type, entries: Iterable[str]) -> Iterator[ast.AST]:
    """Yield the definitions of the named methods and of every helper of the test module that they use."""
    todo: list[tuple[bool, str]] = [(True, name) for name in entries]
    seen = set(todo)
    while todo:
        is_method, name = todo.pop()
        nodes = _methods(cls, name) if is_method else _helpers(cls.__module__, name)
        for node in nodes:
            yield node
            for used in _names_used(node):
                if used not in seen:
                    seen.add(used)
                    todo.append(used)


def _methods(cls: type, name: str) -> Iterator[ast.AST]:
    for base in cls.__mro__:
        if name in vars(base) and base.__module__.startswith("test."):
            definition = _definitions(base.__module__).get(f"{base.__qualname__}.{name}")
            if definition is not None:
                yield definition


def _helpers(module: str, name: str) -> Iterator[ast.AST]:
    definition = _definitions(module).get(name)
    if definition is not None and module.startswith("test."):
        yield definition


def _names_used(node: ast.AST) -> Iterator[tuple[bool, str]]:
    for child in ast.walk(node):
        if isinstance(child, ast.Name):
            yield False, child.id
        elif isinstance(child, ast.Attribute) and _is_self(child.value):
            yield True, child.attr


def _is_self(node: ast.AST) -> bool:
    is_super = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
    return is_super or (isinstance(node, ast.Name) and node.id in ("self", "cls"))


@cache
def _definitions(module: str) -> dict[str, ast.AST]:
    """Index the functions and classes of a module by their qualified name."""
    found: dict[str, ast.AST] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found[prefix + child.name] = child
                if isinstance(child, ast.ClassDef):
                    visit(child, f"{prefix}{child.name}.")
            elif not isinstance(child, ast.expr):
                visit(child, prefix)

    visit(ast.parse(inspect.getsource(sys.modules[module])), "")
    return found


def _names_set_in(node: ast.AST) -> Iterator[str]:
    for child in ast.walk(node):
        if isinstance(child, ast.Attribute | ast.Subscript) and not isinstance(child.ctx, ast.Load):
            yield from _names_along(child)
        elif isinstance(child, ast.Call):
            yield from _names_mocked_by(child)
            yield from _names_called_by(child)
        elif isinstance(child, ast.ClassDef):
            yield from _names_overridden_in(child)


def _names_along(target: ast.AST) -> Iterator[str]:
    """Yield the attributes on the way to what is set: ``loop._selector.select.return_value`` sets three."""
    while isinstance(target, ast.Attribute | ast.Subscript):
        if isinstance(target, ast.Attribute) and not _is_self(target.value):
            yield target.attr
        target = target.value


def _names_mocked_by(call: ast.Call) -> Iterator[str]:
    """Yield what mock.patch, mock.patch.object and setattr name."""
    for argument in call.args:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str) and _is_patch(call.func):
            yield argument.value.rpartition(".")[2]


def _names_called_by(call: ast.Call) -> Iterator[str]:
    """Yield the method of another object that is called."""
    if isinstance(call.func, ast.Attribute) and not _is_self(call.func.value):
        yield call.func.attr


def _is_patch(function: ast.AST) -> bool:
    while isinstance(function, ast.Attribute):
        if function.attr == "patch":
            return True
        function = function.value
    names = ("patch", "mock_obj", "setattr", "swap_attr")  # The second is what the suite calls patch.object.
    return isinstance(function, ast.Name) and function.id in names


def _names_overridden_in(cls: ast.ClassDef) -> Iterator[str]:
    """Yield the methods and attributes that a class of the test's own gives itself."""
    for child in cls.body:
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child.name
        elif isinstance(child, ast.Assign):
            yield from (target.id for target in child.targets if isinstance(target, ast.Name))
