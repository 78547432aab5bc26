"""Noticing when a method of an instance is replaced: by a comparison, or by a descriptor."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if not cython.compiled:
    set_plainly: Any = object.__setattr__
    delete_plainly: Any = object.__delattr__
    clock_function_of: Callable[[Any], Callable[[], float]] = operator.attrgetter("_clock_function")


class OverrideObserver:
    """Notifies its subclass when `call_at` is set on an instance, or deleted from it.

    In a Python class these two methods would add a call to every assignment of an attribute.
    """

    def __setattr__(self, name: str, value: object) -> None:
        set_plainly(self, name, value)
        if name == "call_at":
            self._overrides_changed()

    def __delattr__(self, name: str) -> None:
        delete_plainly(self, name)
        if name == "call_at":
            self._overrides_changed()

    def _overrides_changed(self) -> None:
        """Handle the replacement of a method, or the return of the class's own."""


class NoObserver:
    """The same without methods, for the uncompiled build, whose machine sets all its state as attributes."""


class ObservedDescriptor:
    """The monotonic clock, in seconds (``asyncio.loop.time``).

    A method that notices its replacement on an instance. The function lies in the attribute
    `_clock_function`, so reading it costs no Python call.
    """

    def __init__(
        self,
        method: Any,
        read: Callable[[Any], float],
        replaced: Callable[[Any, Any], None],
        restored: Callable[[Any], None],
    ) -> None:
        self.__name__: Any = method.__name__
        self._method = method
        self._read = read  # called on the class
        self._replaced = replaced
        self._restored = restored

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._method)

    def __get__(self, loop: Any, owner: Any) -> Any:
        return self if loop is None else clock_function_of(loop)

    def __set__(self, loop: Any, function: Any) -> None:
        self._replaced(loop, function)

    def __delete__(self, loop: Any) -> None:
        self._restored(loop)

    def __call__(self, loop: Any) -> float:
        return self._read(loop)
