"""Running a program on Whorl's event loops as Python runs it, without Whorl's frames in its tracebacks."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import linecache
import os
import pkgutil
import runpy
import sys
import textwrap
import warnings
from collections.abc import Callable, Sequence
from importlib.machinery import BuiltinImporter, SourceFileLoader, SourcelessFileLoader
from types import CodeType, ModuleType, TracebackType
from typing import Any, NoReturn

import whorl

Start = Callable[[], object]


class NotAProgram(Exception):
    """The given name is neither a file nor `package.module:function`."""


class Launch(Exception):
    """A program that is to be launched: the command line raises this to leave first."""

    def __init__(self, start: Start, loop_factory: Callable[[], whorl.EventLoop]) -> None:
        super().__init__()
        self.start = start
        self.loop_factory = loop_factory


def launch(start: Start, loop_factory: Callable[[], whorl.EventLoop] = whorl.new_event_loop) -> NoReturn:
    """Run a program with loops of this factory's, and exit as Python does.

    An unhandled exception is reported as if Whorl's frames were not there. Then it is raised on: so Python
    ends the process as it always does, by SIGINT after a KeyboardInterrupt.
    """
    _use_whorl(loop_factory)
    try:
        status = start()
    except SystemExit:
        raise
    except BaseException as error:
        error.__traceback__ = _program_traceback(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        sys.excepthook = _say_nothing
        raise
    sys.exit(status)  # type: ignore[arg-type]


def _use_whorl(loop_factory: Callable[[], whorl.EventLoop]) -> None:
    """Make Whorl the loop of every `asyncio.run` in the process."""
    with warnings.catch_warnings():
        # Event loop policies are deprecated, and still the only way in that every library respects.
        warnings.simplefilter("ignore", DeprecationWarning)
        whorl.install(loop_factory)


def _say_nothing(*error: object) -> None:
    """Stand in the place of `sys.excepthook` for an exception that has been reported."""


def program(name: str, arguments: Sequence[str]) -> Start:
    """Return the function that runs a file, a folder or archive with `__main__.py`, stdin or a function.

    Raises NotAProgram for another name.
    """
    if name == "-":
        return _standard_input(arguments)
    if not os.path.exists(name):
        return _function(name, arguments)
    if pkgutil.get_importer(name) is not None:
        return _folder(name, arguments)
    return _script(name, arguments)


def module(name: str, arguments: Sequence[str]) -> Start:
    """Return the function that runs a module, as `python -m` does."""

    def start() -> None:
        _begin(["-m", *arguments], os.getcwd())
        _run_as_main(name, True)

    return start


def _folder(path: str, arguments: Sequence[str]) -> Start:
    """Return the function that runs the `__main__` module of a folder or archive."""

    def start() -> None:
        _begin([path, *arguments], os.path.join(os.getcwd(), path), even_if_safe=True)
        _run_as_main("__main__", False)

    return start


# It is what Python itself calls; the public functions of runpy restore `sys.modules` at the end.
_run_as_main: Any = vars(runpy)["_run_module_as_main"]


def _script(path: str, arguments: Sequence[str]) -> Start:
    def start() -> None:
        main = _begin([path, *arguments], os.path.dirname(os.path.realpath(path)))
        file = os.path.join(os.getcwd(), path)
        loader: Any = (SourcelessFileLoader if path.endswith(".pyc") else SourceFileLoader)("__main__", file)
        main.__dict__.update(__loader__=loader)
        _set_file(main, file)
        if isinstance(loader, SourcelessFileLoader):
            code: Any = loader.get_code("__main__")
        else:
            code = _compiled(loader.get_data(file), file)
        exec(code, main.__dict__)

    return start


def command(text: str, arguments: Sequence[str]) -> Start:
    """Return the function that runs a text, as `python -c` does."""

    def start() -> None:
        main = _begin(["-c", *arguments], "")
        source = textwrap.dedent(text) if sys.version_info >= (3, 14) else text
        code = _compiled(source, "<string>")
        if sys.version_info >= (3, 13):  # where tracebacks show the lines of such a program
            key = code if hasattr(linecache, "_interactive_cache") else "<string>"
            vars(linecache)["_register_code"](key, source, "<string>")
        exec(code, main.__dict__)

    return start


def _standard_input(arguments: Sequence[str]) -> Start:
    def start() -> None:
        main = _begin(["-", *arguments], "")
        _set_file(main, "<stdin>")
        exec(_compiled(sys.stdin.buffer.read(), "<stdin>"), main.__dict__)

    return start


def _compiled(source: str | bytes, name: str) -> CodeType:
    """Return the code of a program, which inherits no `from __future__ import` from this module."""
    return compile(source, name, "exec", dont_inherit=True)


def _begin(argv: list[str], folder: str, even_if_safe: bool = False) -> ModuleType:
    """Set the arguments, the first entry of the import path, and a new `__main__`; return that."""
    sys.argv[:] = argv
    if not sys.flags.safe_path:
        sys.path[0] = folder
    elif even_if_safe:
        sys.path.insert(0, folder)
    main = ModuleType("__main__")
    main.__dict__.update(__builtins__=sys.modules["builtins"], __loader__=BuiltinImporter)
    if sys.version_info < (3, 14):
        main.__dict__.update(__annotations__={})
    sys.modules["__main__"] = main
    return main


def _set_file(main: ModuleType, file: str) -> None:
    main.__dict__.update(__file__=file)
    if sys.version_info < (3, 15):
        main.__dict__.update(__cached__=None)


def _function(name: str, arguments: Sequence[str]) -> Start:
    module_name, colon, path = name.partition(":")
    if name.startswith("-"):
        raise NotAProgram(f"no such option: {name}")
    if not (colon and path and all(part.isidentifier() for part in module_name.split("."))):
        raise NotAProgram(f"{name!r} is neither a file nor of the form package.module:function")

    def start() -> int:
        sys.argv[:] = [name, *arguments]
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
    """Return the part of `traceback` after Whorl's frames; None if the program was never reached."""
    ours = (__file__, importlib.__file__)
    while traceback is not None:
        file_name = traceback.tb_frame.f_code.co_filename
        if file_name not in ours and not file_name.startswith("<frozen importlib"):
            break
        traceback = traceback.tb_next
    return traceback
