"""The compiled modules of Whorl, and the files of which each one's C code is made.

A module is compiled when a `.pxd` stands beside its `.py`; there is no other list. Its C code is a function
of those two files and of every `.pxd` that can be reached from them by `cimport`. Its machine code is a
function of its C code and of the headers that these `.pxd` files and headers include.

A module without a `.pxd` can be cimported, too: its whole numbers are constants of C.
"""

from __future__ import annotations

import fcntl
import re
import runpy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src"

_CIMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(?P<origin>[.\w]+)[ \t]+cimport[ \t]+(?P<names>\([^)]*\)|[^\n]+)"
    r"|cimport[ \t]+(?P<modules>[^\n]+))",
    re.MULTILINE,
)
_INCLUDE = re.compile(r'^[ \t]*(?:cdef[ \t]+extern[ \t]+from|#[ \t]*include)[ \t]+"([^"]+)"', re.MULTILINE)


@dataclass(frozen=True, order=True)
class Module:
    """A module that is compiled: its dotted name, and the folder that its package stands in."""

    name: str
    folder: Path

    @property
    def source(self) -> Path:
        return self.folder / (self.name.replace(".", "/") + ".py")

    @property
    def declarations(self) -> Path:
        return self.source.with_suffix(".pxd")


def compiled_modules(folder: Path = SOURCES) -> list[Module]:
    """Return every module below `folder` that has a `.pxd` beside it, by name."""
    return sorted(
        Module(".".join(path.relative_to(folder).with_suffix("").parts), folder)
        for path in folder.rglob("*.pxd")
        if path.with_suffix(".py").exists()
    )


def inputs(module: Module) -> list[Path]:
    """Return the sources of `module`'s binary in a stable order: what Cython and the compiler read."""
    found = {module.source, module.declarations}
    waiting = [module.source, module.declarations]
    while waiting:
        path = waiting.pop()
        named = [*included(path, module.folder), *cimported(path, module.folder)]
        waiting += set(named) - found
        found |= set(named)
    return sorted(found)


def included(path: Path, folder: Path) -> Iterator[Path]:
    """Yield the headers below `folder` that `path` includes; others belong to Python and to the system."""
    for name in _INCLUDE.findall(path.read_text(encoding="utf-8")):
        if (folder / name).exists():
            yield folder / name


def cimported(path: Path, folder: Path) -> Iterator[Path]:
    """Yield the `.pxd` files below `folder` that `path` names in a `cimport`, and modules that have none."""
    package = path.relative_to(folder).parent.parts
    for name in _cimported_names(path.read_text(encoding="utf-8"), package):
        stem = folder / name.replace(".", "/")
        for candidate in (stem.with_suffix(".pxd"), stem / "__init__.pxd", stem.with_suffix(".py")):
            if candidate.exists():
                yield candidate
                break


def content(path: Path, module: Module) -> bytes:
    """Return what an input is to `module`: its text, or the `.pxd` of a module that has none.

    Such a `.pxd` declares the module's whole numbers, which C sees as if they stood there.
    """
    text = path.read_bytes()
    return _constants(path, text) if path.suffix == ".py" and path != module.source else text


@cache
def _constants(path: Path, _text: bytes) -> bytes:
    numbers = {name: value for name, value in runpy.run_path(str(path)).items() if type(value) is int}
    lines = [
        f'    {"int" if abs(value) < 1 << 31 else "int64_t"} {name} "({value})"\n'
        for name, value in numbers.items()
        if abs(value) < 1 << 63
    ]
    head = "from libc.stdint cimport int64_t\ncdef extern from *:\n"
    return (head + ("".join(lines) or "    pass\n")).encode()


def _cimported_names(text: str, package: tuple[str, ...]) -> Iterator[str]:
    for match in _CIMPORT.finditer(text):
        if match["modules"]:
            yield from _listed(match["modules"])
        else:
            origin = _absolute(match["origin"], package)
            yield origin
            for name in _listed(match["names"]):
                yield f"{origin}.{name}"  # a cimported name may itself be a module


def _listed(names: str) -> list[str]:
    """Return the names of an import list, without comments, parentheses and `as`."""
    plain = re.sub(r"#[^\n]*", "", names).strip(" ()\n\t\r,")
    return [part.split()[0] for part in plain.split(",") if part.strip()]


def _absolute(origin: str, package: tuple[str, ...]) -> str:
    name = origin.lstrip(".")
    level = len(origin) - len(name)
    if level == 0:
        return name
    parents = package[: len(package) - level + 1]
    return ".".join((*parents, name) if name else parents)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process builds in `folder`, and keep others out."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / f"{folder.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
