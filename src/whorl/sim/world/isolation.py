"""Modules of which each host has its own: a process begins with none of another one's variables."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whorl.sim.world.turns import Turns

#: A life of a host: its name, and the number of the life.
LifePlace = tuple[str, int]


class Isolation:
    """The modules of a world that its hosts do not share."""

    def __init__(self, world: Turns) -> None:
        self._world = world
        self._copies: dict[tuple[LifePlace, str], ModuleType] = {}
        self._code: dict[str, CodeType] = {}
        self._isolated: dict[str, ModuleType] = {}  # the modules of the real process

    def add(self, name: str) -> None:
        """Isolate a module and those below it. Raises ImportError, and ValueError without a source."""
        importlib.import_module(name)
        below = f"{name}."
        for each in sorted(found for found in sys.modules if found == name or found.startswith(below)):
            module = sys.modules[each]
            if each not in self._isolated and module is not None:
                self._code[each] = _code_of(each, module)
                self._isolated[each] = module
                _OWNERS[each] = self
                module.__class__ = PerHost

    def copy(self, name: str) -> ModuleType:
        """Return the module as the current host has it; load it if the host's process has not done so."""
        host = self._world.current or self._world.main
        place = (host.name, host._lives), name
        found = self._copies.get(place)
        if found is None:
            spec = object.__getattribute__(self._isolated[name], "__dict__")["__spec__"]
            found = self._copies[place] = importlib.util.module_from_spec(spec)
            try:
                exec(self._code[name], found.__dict__)
            except BaseException:
                del self._copies[place]
                raise
        return found

    def end(self) -> None:
        """Let the modules be those of the real process again."""
        for name, module in self._isolated.items():
            object.__setattr__(module, "__class__", ModuleType)
            del _OWNERS[name]
        self._isolated.clear()
        self._copies.clear()


_OWNERS: dict[str, Isolation] = {}


def _code_of(name: str, module: ModuleType) -> CodeType:
    loader: Any = getattr(module.__spec__, "loader", None)
    writes_none, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # A world writes no real files.
    try:
        code = loader.get_code(name) if hasattr(loader, "get_code") else None
    finally:
        sys.dont_write_bytecode = writes_none
    if type(module) is not ModuleType or not isinstance(code, CodeType):
        raise ValueError(f"{name} cannot be isolated: it is not a module of Python source")
    return code


class PerHost(ModuleType):
    """A module in whose place each host sees its own."""

    def __getattribute__(self, name: str) -> Any:
        return getattr(_here(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_here(self), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_here(self), name)

    def __dir__(self) -> list[str]:
        return dir(_here(self))


def _here(module: ModuleType) -> ModuleType:
    """Return the current host's module."""
    name = object.__getattribute__(module, "__dict__")["__name__"]
    return _OWNERS[name].copy(name)
