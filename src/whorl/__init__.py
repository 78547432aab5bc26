"""Whorl: an event loop for asyncio, in ordinary Python that also runs compiled.

PYTEST_DONT_REWRITE: without this word pytest warns if a program imports Whorl before pytest.
"""

from __future__ import annotations

import os as _os
import typing as _typing

from whorl import compiled_modules as _compiled_modules  # noqa: F401 - it finds the modules below
from whorl import handles
from whorl.aio.loop.event_loop import EventLoop
from whorl.aio.runners.runner import Runner, new_event_loop, run, server_loop
from whorl.core.loop.loop import COMPILED as _COMPILED
from whorl.core.loop.loop import Loop
from whorl.core.states import RunMode

if _typing.TYPE_CHECKING:
    from whorl import fs, inspector
    from whorl.aio.loop.nested_runs import allow_nested_runs
    from whorl.aio.runners.driver import Driver
    from whorl.aio.runners.guest import start_guest_run
    from whorl.aio.runners.many_loops import run_loops
    from whorl.aio.runners.policy import EventLoopPolicy, install
    from whorl.aio.streams.reader_writer import (
        open_connection,
        open_unix_connection,
        start_server,
        start_unix_server,
    )
    from whorl.preloading import preload
    from whorl.substitute import as_uvloop

__version__ = "0.1.0"

compiled: bool = _COMPILED
"""Whether the machine runs compiled."""

__all__ = [
    "Driver",
    "EventLoop",
    "EventLoopPolicy",
    "Loop",
    "RunMode",
    "Runner",
    "__version__",
    "allow_nested_runs",
    "as_uvloop",
    "compiled",
    "fs",
    "handles",
    "inspector",
    "install",
    "new_event_loop",
    "open_connection",
    "open_unix_connection",
    "preload",
    "run",
    "run_loops",
    "server_loop",
    "start_guest_run",
    "start_server",
    "start_unix_server",
]


# The names that are imported at their first use, each with the module that has it or that it is. Whorl looks
# at asyncio when it is imported, to notice what a program replaces later. The modules here look at nothing.
_HOMES = {
    "Driver": "whorl.aio.runners.driver",
    "EventLoopPolicy": "whorl.aio.runners.policy",
    "allow_nested_runs": "whorl.aio.loop.nested_runs",
    "as_uvloop": "whorl.substitute",
    "fs": "whorl.fs",
    "inspector": "whorl.inspector",
    "install": "whorl.aio.runners.policy",
    "open_connection": "whorl.aio.streams.reader_writer",
    "open_unix_connection": "whorl.aio.streams.reader_writer",
    "preload": "whorl.preloading",
    "run_loops": "whorl.aio.runners.many_loops",
    "start_guest_run": "whorl.aio.runners.guest",
    "start_server": "whorl.aio.streams.reader_writer",
    "start_unix_server": "whorl.aio.streams.reader_writer",
}


def __getattr__(name: str) -> _typing.Any:
    """Import a name at its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    home = importlib.import_module(_HOMES[name])
    value = globals()[name] = home if home.__name__ == f"whorl.{name}" else getattr(home, name)
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return sorted({*globals(), *__all__})


if _os.environ.get("WHORL_AS_UVLOOP"):
    from whorl.substitute import as_environment_says as _as_environment_says

    _as_environment_says()
if _os.environ.get("WHORL_INSPECT"):
    from whorl.inspector.inspector import start_from_environment as _start_from_environment

    _start_from_environment()
