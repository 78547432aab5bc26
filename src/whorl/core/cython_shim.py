"""A stand-in for the module `cython` where Cython is not installed; it says that nothing is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

Function = TypeVar("Function")

compiled: Final = False


def binding(wanted: bool) -> Callable[[Function], Function]:
    """Return whether a function becomes a method when a class has it; uncompiled, every function does."""
    return lambda function: function
