"""Objects of which there can be no copy: each stands for something of a loop, of the system or of a run."""

from __future__ import annotations

from typing import NoReturn


def refuse_copy(thing: object) -> NoReturn:
    """Raise TypeError, in Python's words, as the `__reduce__` of a class: `copy` and `pickle` call it.

    Without it they make an object that is initialized in part. It would own a descriptor that another owns.
    """
    raise TypeError(f"cannot pickle {type(thing).__name__!r} object")
