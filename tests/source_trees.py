"""The sources of Whorl as tests about them see them: parsed `.py` files, and what each one imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from build_tools.sources import SOURCES, cimported


@dataclass(frozen=True)
class Import:
    """One import: the module or name it names, the line, and when it happens."""

    name: str
    line: int
    is_for_types: bool
    """Below `if TYPE_CHECKING`: it never happens."""
    is_late: bool
    """In a function: it happens after all modules were imported."""


@dataclass(frozen=True)
class Source:
    """A module."""

    name: str
    path: Path

    @property
    def tree(self) -> ast.Module:
        return parsed(self.path)

    @property
    def is_compiled(self) -> bool:
        return self.path.with_suffix(".pxd").exists()

    @property
    def package(self) -> str:
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]

    def imports(self) -> Iterator[Import]:
        yield from _imports(self.tree, self.package, False, False)

    def cimports(self) -> Iterator[str]:
        """Yield the modules that its declarations name in a `cimport`."""
        if self.is_compiled:
            yield from map(_module_name, cimported(self.path.with_suffix(".pxd"), SOURCES))


@cache
def all_sources() -> tuple[Source, ...]:
    """Return every module of the package."""
    return tuple(Source(_module_name(path), path) for path in sorted((SOURCES / "whorl").rglob("*.py")))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _module_name(path: Path) -> str:
    parts = path.relative_to(SOURCES).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(node: ast.AST, package: str, is_for_types: bool, is_late: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(alias.name, node.lineno, is_for_types, is_late)
    elif isinstance(node, ast.ImportFrom):
        origin = _origin(node, package)
        for alias in node.names:
            yield Import(f"{origin}.{alias.name}", node.lineno, is_for_types, is_late)
    elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        for child in node.body:
            yield from _imports(child, package, True, is_late)
        for child in node.orelse:
            yield from _imports(child, package, is_for_types, is_late)
    else:
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from _imports(child, package, is_for_types, is_late or is_function)


def _origin(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parents = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*parents, node.module] if node.module else parents)
