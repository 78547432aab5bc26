"""Puts a loop class in the place of asyncio's, and counts the turns that its loops run."""

import asyncio
import contextlib
import functools
import sys
import types
from asyncio import (
    base_events,
    proactor_events,  # noqa: F401 (its loop is made of asyncio's own class, while that is there)
    selector_events,
    unix_events,
)
from collections.abc import Callable, Iterator
from typing import Any

import stand_in

# Where asyncio keeps its loop classes; some Pythons do not have all of these names.
LOOP_CLASSES = (
    (base_events, "BaseEventLoop"),
    (unix_events, "_UnixSelectorEventLoop"),
    (unix_events, "SelectorEventLoop"),
    (unix_events, "EventLoop"),
    (asyncio, "BaseEventLoop"),
    (asyncio, "SelectorEventLoop"),
    (asyncio, "EventLoop"),
)

# Tests put a mock in the place of `logger`, `signal` or `socket` in these.
MIRRORED_MODULES = (base_events, selector_events, unix_events)


class Turns:
    """The number of turns that loops have run so far: those of the kind under test, and asyncio's own."""

    def __init__(self) -> None:
        self.ours = 0
        self.stock = 0
        self._paused = False

    def add(self, turns: int, *, stock: bool) -> None:
        if self._paused:
            return
        if stock:
            self.stock += turns
        else:
            self.ours += turns

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out what a test's clean-up runs."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before


turns = Turns()


def install(loop: str) -> Any:
    """Let asyncio and its tests make loops of the named kind, and return its class.

    To be called before any test module is imported.
    """
    if loop == "asyncio":
        _count_runs(base_events.BaseEventLoop, stock=False)
        return asyncio.SelectorEventLoop
    _count_runs(base_events.BaseEventLoop, stock=True)
    from test.test_asyncio import utils  # Its own test loop stays one of asyncio's.

    stock_class = base_events.BaseEventLoop
    loop_class = _load_whorl() if loop == "whorl" else _load_uvloop()
    for module, name in LOOP_CLASSES:
        if hasattr(module, name):
            setattr(module, name, loop_class)
    unix_events._UnixDefaultEventLoopPolicy._loop_factory = loop_class
    # Of this one, other loops are no instances: tests ask before they look at what only asyncio's loop has.
    # It is also the one that cannot send files by the kernel.
    without = {"_sock_sendfile_native": stock_class._sock_sendfile_native}
    selector_events.BaseSelectorEventLoop = type("BaseSelectorEventLoop", (loop_class,), without)
    for module in MIRRORED_MODULES:
        module.__class__ = MirroredModule
    _replace_test_loops(utils.TestCase, loop_class)
    return loop_class


def install_streams() -> None:
    """Let asyncio make Whorl's stream classes at once, also where no transport would adopt its own."""
    from whorl.aio.streams import reader_writer as ours

    for name in ("StreamReader", "StreamWriter"):
        for module in (asyncio, asyncio.streams):
            setattr(module, name, getattr(ours, name))


def report_absent_methods(loop_class: Any, report: Callable[[str], None]) -> None:
    """Report each call of a method that the loop has only from asyncio's abstract class."""
    absent = [
        name
        for name, method in vars(asyncio.AbstractEventLoop).items()
        if not name.startswith("_") and getattr(loop_class, name) is method
    ]

    def get_missing(loop: Any, name: str) -> Any:
        """Return a private part of a method, which is absent with it."""
        for method in absent:
            if name.startswith(f"_{method}"):
                report(method)
        raise AttributeError(f"{type(loop).__name__!r} object has no attribute {name!r}", name=name, obj=loop)

    for name in absent:
        setattr(loop_class, name, _reported(getattr(loop_class, name), functools.partial(report, name)))
    if absent:
        loop_class.__getattr__ = get_missing


def _reported(method: Any, report: Callable[[], None]) -> Any:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        report()
        return method(*args, **kwargs)

    return call


def _load_whorl() -> type[asyncio.AbstractEventLoop]:
    from whorl_loop import EventLoop

    _count_runs(EventLoop, lambda loop: loop.metrics().turns)
    return EventLoop


def _load_uvloop() -> type[asyncio.AbstractEventLoop]:
    import uvloop

    class Loop(uvloop.Loop):
        """A uvloop that accepts and ignores the selector it is given."""

        def __init__(self, selector: Any = None) -> None:
            super().__init__()

        def run_forever(self) -> None:
            super().run_forever()

    _count_runs(Loop)
    return Loop


def _count_runs(cls: Any, read: Callable[[Any], int] | None = None, *, stock: bool = False) -> None:
    """Count the turns of every run; a loop that has no count to read has run at least one."""
    run_forever = cls.run_forever

    @functools.wraps(run_forever)
    def counted(loop: Any) -> None:
        before = read(loop) if read else 0
        try:
            run_forever(loop)
        finally:
            turns.add(read(loop) - before if read else 1, stock=stock)

    cls.run_forever = counted


class MirroredModule(types.ModuleType):
    """A module of asyncio's; what a test puts in the place of one of its globals, Whorl's face sees too."""

    def __setattr__(self, name: str, value: Any) -> None:
        missing = object()
        before = vars(self).get(name, missing)
        super().__setattr__(name, value)
        for module in _whorl_modules():
            if vars(module).get(name) is before:
                setattr(module, name, value)


def _whorl_modules() -> list[types.ModuleType]:
    return [module for name, module in sys.modules.items() if name.startswith("whorl.aio.")]


def _replace_test_loops(test_case: Any, loop_class: type[asyncio.AbstractEventLoop]) -> None:
    """Replace the loops that the suite's base class makes, and do not count what closing them runs."""
    make_stock_loop = test_case.new_test_loop
    close_loop = test_case.close_loop
    plain, timed = stand_in.make_test_loops(loop_class)

    def new_test_loop(self: Any, gen: Any = None) -> asyncio.AbstractEventLoop:
        if gen is not None and timed is None:
            return make_stock_loop(self, gen)
        loop = plain() if gen is None else timed(gen)
        self.set_event_loop(loop)
        return loop

    def close_loop_uncounted(loop: Any) -> None:
        if not hasattr(loop, "_default_executor"):
            loop = stand_in.Closing(loop)
        with turns.paused():
            close_loop(loop)

    test_case.new_test_loop = new_test_loop
    test_case.close_loop = staticmethod(close_loop_uncounted)
