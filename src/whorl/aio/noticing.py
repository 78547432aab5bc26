"""A base class that notices when a method of an instance is replaced, at the price of a comparison."""

from __future__ import annotations

from typing import Any

try:
    import cython
except ImportError:
    from whorl.core import uncompiled as cython

if not cython.compiled:
    set_plainly: Any = object.__setattr__
    delete_plainly: Any = object.__delattr__


class Noticing:
    """Tells its subclass when `call_at` is put on an instance, or taken off it.

    In a class of Python's these two methods would cost every attribute that is set a call.
    """

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        set_plainly(self, name, value)
        if name == "call_at":
            self._look_again()

    def __delattr__(self, name: str) -> None:
        delete_plainly(self, name)
        if name == "call_at":
            self._look_again()

    def _look_again(self) -> None:
        """Something was replaced, or is the class's own again."""


class Unaware:
    """The same for the uncompiled build, whose machine sets all that it remembers as attributes: nothing."""

    __slots__ = ()
