"""The public names of Whorl, and the pages of the reference that Sphinx makes from their docstrings."""

from __future__ import annotations

import asyncio
import enum
import importlib
import inspect
import re
from functools import cache
from types import ModuleType
from typing import Any

from build_tools.sources import ROOT

# The modules whose `__all__` is public, and those whose classes come to a program without being named there.
MODULES = (
    *("whorl", "whorl.handles", "whorl.handles.fs", "whorl.core", "whorl.fs", "whorl.inspector", "whorl.sim"),
    "whorl.system",
)
EXPORTERS = {"whorl.inspector": ("Collector", "instrument")}  # which are imported at their first use
_NOT_OURS = "BaseException, Exception, Enum, IntEnum, IntFlag, int, object, str, tuple, set, dict"


def public_names(module_name: str) -> dict[str, Any]:
    """Return the public objects of a module by their names, without the modules among them."""
    module = importlib.import_module(module_name)
    own = [name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module_name]
    names = getattr(module, "__all__", own)
    things = {name: getattr(module, name) for name in [*names, *EXPORTERS.get(module_name, ())]}
    return {
        name: thing
        for name, thing in things.items()
        if not isinstance(thing, ModuleType) and not name.startswith("_")
    }


def public_methods(thing: type) -> dict[str, Any]:
    """Return the public methods and properties of a class of Whorl's, inherited ones of Whorl's, too."""
    from whorl.aio.interop.first_use import import_all

    import_all(thing)
    found: dict[str, Any] = {}
    for base in reversed(thing.__mro__):
        if base.__module__.startswith("whorl"):
            found |= {
                name: value
                for name, value in vars(base).items()
                if not name.startswith("_")
                and (callable(value) or isinstance(value, property | staticmethod | classmethod))
            }
    return found


def pages_of_reference() -> dict[str, str]:
    """Return the pages of the reference by their names: one for each public module."""
    shown: dict[int, str] = {}  # an object is shown on the first page that has it
    return {module: _page(module, shown) for module in MODULES}


def _page(module_name: str, shown: dict[int, str]) -> str:
    """Return the page of a module, in reStructuredText."""
    module = importlib.import_module(module_name)
    lines = [f"``{module_name}``", "=" * (len(module_name) + 4), "", inspect.getdoc(module) or "", ""]
    lines += [f".. py:currentmodule:: {module_name}", ""]
    for name, thing in sorted(public_names(module_name).items(), key=lambda item: item[0].lower()):
        place = shown.setdefault(id(thing), f"{module_name}.{name}")
        entry = _entry(module_name, name, thing)
        lines += [name, "-" * len(name), ""]
        lines += entry if place == f"{module_name}.{name}" else [f"The same as :py:obj:`{place}`."]
        lines.append("")
    return "\n".join(lines)


def _entry(module_name: str, name: str, thing: Any) -> list[str]:
    """Return the directive by which Sphinx shows an object."""
    if not isinstance(thing, type):
        kind = "autofunction" if callable(thing) else "autodata"
        return [f".. {kind}:: {module_name}.{name}"]
    lines = [f".. autoclass:: {module_name}.{name}", "   :show-inheritance:", "   :members:"]
    if issubclass(thing, enum.Enum):
        return [*lines, "   :undoc-members:"]
    return [*lines, f"   :inherited-members: {_NOT_OURS}"]


@cache
def explained_parameters() -> dict[tuple[str, str], str]:
    """Return the meanings in docs/reference/parameters.md, by parameter and beginning of the place."""
    text = (ROOT / "docs" / "reference" / "parameters.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([\w.]*) ?\| (.+) \|$", text, re.MULTILINE)
    return {(name, place): meaning for name, place, meaning in rows}


def unnamed_parameters(function: Any) -> list[inspect.Parameter]:
    """Return the parameters of a function that its docstring does not name."""
    text = inspect.getdoc(function) or ""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a class that is made by C code
        return []
    return [
        one
        for one in parameters
        if one.name not in ("self", "cls") and not re.search(rf"\b{re.escape(one.name)}\b", text)
    ]


def meaning(parameter: str, place: str) -> str | None:
    """Return the meaning of a parameter of a function at `place`, its dotted name; None: it has none."""
    found = [(of, text) for (name, of), text in explained_parameters().items() if name == parameter]
    return next((text for of, text in sorted(found, reverse=True) if place.startswith(of)), None)


def complete(place: str, function: Any, lines: list[str]) -> None:
    """Add to the lines of a docstring the parameters that it does not name, and asyncio as the source."""
    rows = [(one.name, meaning(one.name, place)) for one in unnamed_parameters(function)]
    explained = [
        f"* ``{name}``: {text}".replace("`", "``").replace("````", "``") for name, text in rows if text
    ]
    if explained:
        lines += ["", "Parameters:", "", *explained, ""]
    name = place.rpartition(".")[2]
    if place.startswith("whorl.EventLoop.") and hasattr(asyncio.AbstractEventLoop, name):
        if not any("Source:" in line for line in lines):
            lines += ["", f"Source: ``asyncio.loop.{name}``.", ""]
