"""Whorl: an event loop for asyncio, in ordinary Python that also runs compiled."""

from __future__ import annotations

import os as _os
import typing as _typing

from whorl import compiled_modules as _compiled_modules  # noqa: F401 - it finds the modules below
from whorl import handles
from whorl.aio.loop.event_loop import EventLoop
from whorl.aio.runners.driver import Driver
from whorl.aio.runners.guest import start_guest_run
from whorl.aio.runners.many_loops import run_loops
from whorl.aio.runners.policy import EventLoopPolicy, install
from whorl.aio.runners.runner import Runner, new_event_loop, run, server_loop
from whorl.aio.streams.reader_writer import (
    open_connection,
    open_unix_connection,
    start_server,
    start_unix_server,
)
from whorl.core.loop.loop import COMPILED as _COMPILED
from whorl.core.loop.loop import Loop
from whorl.core.states import RunMode
from whorl.substitute import as_environment_says as _as_environment_says
from whorl.substitute import as_uvloop

if _typing.TYPE_CHECKING:
    from whorl import fs, inspector

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
    "as_uvloop",
    "compiled",
    "fs",
    "handles",
    "inspector",
    "install",
    "new_event_loop",
    "open_connection",
    "open_unix_connection",
    "run",
    "run_loops",
    "server_loop",
    "start_guest_run",
    "start_server",
    "start_unix_server",
]


def __getattr__(name: str) -> _typing.Any:
    """Import `whorl.fs` and `whorl.inspector` at their first use."""
    if name in ("fs", "inspector"):
        import importlib

        return importlib.import_module(f"whorl.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_as_environment_says()
if _os.environ.get("WHORL_INSPECT"):
    from whorl.inspector.inspector import start_from_environment as _start_from_environment

    _start_from_environment()
