"""Programs by name: "file.py::name", as the command line takes them."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from whorl.sim.running.run import Main

#: The folder whose lines are not a program's.
_HERE = str(Path(__file__).parent)


class NotATarget(ValueError):
    """Raised for a text that names no program for a world."""


@dataclass
class Target:
    """A program, where it stands, and the options that it brings."""

    name: str
    main: Main[Any]
    options: Mapping[str, Any] = field(default_factory=dict)


def targets_of(text: str) -> list[Target]:
    """Return the programs of "FILE::NAME"; without a name `main`, or else all tests of `sim.test`."""
    file, _, name = text.partition("::")
    path = Path(file)
    if not path.is_file():
        raise NotATarget(f"there is no file {file!r}")
    module = _module_of(path)
    if name:
        found: Any = module
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is None:
            raise NotATarget(f"{file} has no {name!r}")
        return [_target(text, found)]
    if "main" in vars(module):
        return [_target(f"{file}::main", module.main)]
    tests = {each: value for each, value in vars(module).items() if hasattr(value, "sim_main")}
    if not tests:
        raise NotATarget(f"{file} has no function `main`, and no test of sim.test")
    return [_target(f"{file}::{each}", value) for each, value in tests.items()]


def _module_of(path: Path) -> ModuleType:
    """Import a file, with its folder as the first place for its imports, as Python runs a script."""
    name = path.stem
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise NotATarget(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if not frame.filename.startswith(("<", _HERE))]
        place = f"{own[-1].filename}:{own[-1].lineno}: " if own else ""
        raise NotATarget(f"{path} cannot be imported: {place}{type(error).__name__}: {error}") from error
    return module


def _target(text: str, found: Any) -> Target:
    if hasattr(found, "sim_program"):
        needed = [each for each in inspect.signature(found).parameters.values() if each.default is each.empty]
        if needed:
            raise NotATarget(f"{text} needs {needed[0].name!r}, which only pytest can give it")
        return Target(text, found.sim_program, dict(found.sim_options))
    if not inspect.iscoroutinefunction(found):
        raise NotATarget(f"{text} is no coroutine function")
    parameters = inspect.signature(found).parameters.values()
    required = [each for each in parameters if each.default is each.empty and each.kind not in (2, 4)]
    if len(required) > 1 or any(each.kind is each.KEYWORD_ONLY for each in required):
        names = " and ".join(each.name for each in required)
        raise NotATarget(f"{text} needs {names}; a program takes the world, or nothing")
    return Target(text, found)
