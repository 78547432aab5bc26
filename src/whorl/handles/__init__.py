"""Handles: objects with a descriptor, a timer or a thread, named as in libuv.

The first use of a public name imports them all. A program for asyncio uses none, and starts without them.
"""

from __future__ import annotations

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from whorl.handles.public import *  # noqa: F403 - its `__all__` says which
    from whorl.handles.public import __all__ as __all__


def __getattr__(name: str) -> _typing.Any:
    """Import the public names, and return one of them."""
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    public = _importlib.import_module("whorl.handles.public")
    globals().update({each: getattr(public, each) for each in public.__all__}, __all__=public.__all__)
    try:
        return globals()[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    """List the public names."""
    return sorted({*globals(), *__getattr__("__all__")})
