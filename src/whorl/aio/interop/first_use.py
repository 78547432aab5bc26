"""Methods of the loop whose modules are imported when a program first uses them.

Most programs use few of the loop's methods: a program without servers needs no module of servers. Such a
method stands in the class under its name, as a descriptor. Its first use imports the module, and puts the
function in the descriptor's place. So later uses cost nothing.
"""

from __future__ import annotations

import importlib
import inspect
import threading
from typing import Any

from whorl.core.process.host import call_at_forks
from whorl.core.shared_objects import stop_counting

# Held while a function gets its name: without the GIL, another thread must not be using the function then. It
# is reentrant for signal handlers, and nobody holds it at a fork.
_naming = threading.RLock()
call_at_forks(_naming.acquire, _naming.release, _naming.release)


class ModuleAtFirstUse:
    """A module that is not imported yet; its attributes are methods for the body of a class.

    Coroutines get the names that methods of the class `named_as` have now: reprs of tasks and warnings show
    them.
    """

    def __init__(self, name: str, named_as: type) -> None:
        self._module = name
        self._named_as = named_as

    def __getattr__(self, name: str) -> Any:
        return MethodAtFirstUse(self._module, name, self._named_as)


class MethodAtFirstUse:
    """A method that is imported when it is read, from the class or from an object."""

    __slots__ = ("_attribute", "_function", "_module", "_name", "_named_as", "_owner", "_qualname")

    def __init__(self, module: str, name: str, named_as: type) -> None:
        self._module = module
        self._name = name
        self._named_as = named_as
        self._function: Any = None

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner = owner
        self._attribute = name
        # As it is now: a program may replace the method before its first use here.
        self._qualname = getattr(getattr(self._named_as, name, None), "__qualname__", None)

    def __get__(self, thing: Any, owner: type | None = None) -> Any:
        function = self.function()
        return function if thing is None else function.__get__(thing, owner)

    def function(self) -> Any:
        """Import the function, and return it; it becomes the method, unless a program has replaced that.

        It is always the same function, also if a program drops the module from `sys.modules`.
        """
        if self._function is None:
            function = getattr(importlib.import_module(self._module), self._name)
            is_named = self._qualname is not None and inspect.iscoroutinefunction(function)
            with _naming:
                if self._function is None:  # No other thread was faster.
                    if is_named:
                        function.__qualname__ = self._qualname
                    stop_counting(function)
                    self._function = function
        if vars(self._owner).get(self._attribute) is self:
            setattr(self._owner, self._attribute, self._function)
        return self._function

    def stands_in(self, kind: type) -> bool:
        """Return whether a class or a base of it has this method and no other; nothing is imported."""
        found = found_in(kind, self._attribute)
        return found is self or (self._function is not None and found is self._function)


def found_in(kind: type, name: str) -> Any:
    """Return what stands under a name in a class or the first of its bases that has it; nothing is imported.

    Raises AttributeError if there is none.
    """
    for each in kind.__mro__:
        if name in vars(each):
            return vars(each)[name]
    raise AttributeError(f"type object {kind.__name__!r} has no attribute {name!r}")


def import_all(kind: type) -> None:
    """Import all such methods of a class and its bases now."""
    for each in kind.__mro__:
        for method in list(vars(each).values()):
            if isinstance(method, MethodAtFirstUse):
                method.function()
