"""A guard of memory that is a file: a process goes on if somebody makes the file shorter."""

from __future__ import annotations

from typing import Any

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if not cython.compiled:

    def guard_memory(memory: Any) -> int:
        """Guard the memory; uncompiled, nothing does: Python has no handler that runs at once."""
        return 0

    def unguard(place: int) -> None:
        """Guard it no more."""


class Guard:
    """Guards memory that is mapped as a whole, for as long as this object is there.

    If the file is made shorter, the memory is zero from the next access on, and is no file any more. The
    guard must go before the memory does.
    """

    def __init__(self, memory: Any) -> None:
        if cython.compiled and self._place:
            raise RuntimeError("the guard is initialized already")
        self._place: int = guard_memory(memory)

    def __dealloc__(self) -> None:
        unguard(self._place)
