"""Whorl under the public names of uvloop; `whorl.as_uvloop` puts this package on the import path."""

from __future__ import annotations

import asyncio
import importlib
import sys
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import TypeVar

try:
    import whorl
except ModuleNotFoundError:
    # A child process with another Python, where Whorl is not installed: it is not meant.
    sys.path.remove(str(Path(__file__).parent.parent))
    del sys.modules[__name__]
    importlib.import_module(__name__)
else:
    from whorl import EventLoop as Loop
    from whorl import EventLoopPolicy, new_event_loop

__version__ = "0.23.0"  # of the uvloop whose names and behaviour these are

__all__ = ["EventLoopPolicy", "Loop", "install", "new_event_loop", "run"]

Result = TypeVar("Result")


def run(
    main: Awaitable[Result],
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    debug: bool | None = None,
) -> Result:
    """Run any awaitable by `whorl.run`, as uvloop does; raises TypeError if the loop is none of `Loop`."""

    async def awaited() -> Result:
        if not isinstance(asyncio.get_running_loop(), Loop):
            raise TypeError("uvloop.run() got a non-uvloop event loop from loop_factory")
        return await main

    return whorl.run(awaited(), loop_factory=loop_factory, debug=debug)


def install() -> None:
    """Let every `asyncio.run` of this process run on Whorl, as `whorl.install`; deprecated by uvloop."""
    if sys.version_info >= (3, 12):
        warnings.warn("uvloop.install() is deprecated: use uvloop.run()", DeprecationWarning, stacklevel=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        whorl.install()


class _StandIn(ModuleType):
    """A module that says in its repr that it is not uvloop."""

    def __repr__(self) -> str:
        return f"<module {self.__name__!r}: Whorl {whorl.__version__} in the place of uvloop {__version__}>"


_module = sys.modules[__name__]
if _module.__dict__ is globals():
    _module.__class__ = _StandIn
