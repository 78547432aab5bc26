"""Running a program on Whorl's event loops, without Whorl's frames in its tracebacks."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import runpy
import sys
import warnings
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NoReturn

import whorl

INTERRUPTED = 130  # the code that shells report for a program that Ctrl-C ended: 128 + SIGINT


class NotAProgram(Exception):
    """The given name is neither a script nor `package.module:function`."""


def launch(
    program: str,
    arguments: Sequence[str],
    loop_factory: Callable[[], whorl.EventLoop] = whorl.new_event_loop,
) -> NoReturn:
    """Run `program` as Python would, with loops of this factory's, and exit as it does."""
    start = _script(program) if os.path.exists(program) else _function(program)
    sys.argv[:] = [program, *arguments]
    _use_whorl(loop_factory)
    try:
        status = start()
    except KeyboardInterrupt:
        status = INTERRUPTED
    except Exception as error:
        error.__traceback__ = _program_traceback(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        status = 1
    sys.exit(status)


def _use_whorl(loop_factory: Callable[[], whorl.EventLoop]) -> None:
    """Make Whorl the loop of every `asyncio.run` in the process."""
    with warnings.catch_warnings():
        # Event loop policies are deprecated, and still the only way in that every library respects.
        warnings.simplefilter("ignore", DeprecationWarning)
        whorl.install(loop_factory)


def _script(path: str) -> Callable[[], int]:
    def start() -> int:
        if not sys.flags.safe_path and not os.path.isdir(path):
            sys.path[0] = os.path.dirname(os.path.abspath(path))
        runpy.run_path(path, run_name="__main__")
        return 0

    return start


def _function(name: str) -> Callable[[], int]:
    module_name, colon, path = name.partition(":")
    if not (colon and path and all(part.isidentifier() for part in module_name.split("."))):
        raise NotAProgram(f"{name!r} is neither a file nor of the form package.module:function")

    def start() -> int:
        if not sys.flags.safe_path:
            sys.path[0] = os.getcwd()
        function: Any = importlib.import_module(module_name)
        for attribute in path.split("."):
            function = getattr(function, attribute)
        result = function()
        if inspect.isawaitable(result):
            result = asyncio.run(_finished(result))
        return result if isinstance(result, int) else 0

    return start


async def _finished(awaitable: Any) -> Any:
    return await awaitable


def _program_traceback(traceback: TracebackType | None) -> TracebackType | None:
    """Return the part of `traceback` that begins in the program; None if the program was never reached."""
    ours = (__file__, runpy.__file__, importlib.__file__)
    while traceback is not None:
        file_name = traceback.tb_frame.f_code.co_filename
        if file_name not in ours and not file_name.startswith("<frozen "):
            break
        traceback = traceback.tb_next
    return traceback
