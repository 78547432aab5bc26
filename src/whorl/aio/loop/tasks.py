"""Making futures and tasks: those of the running Python."""

from __future__ import annotations

import asyncio
import inspect
import sys
from asyncio import futures, tasks
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from whorl.aio.futures.task_factory import ask_factory, task_of_factory

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator
    from typing import TypeAlias

    from whorl.aio.loop_type import AnyLoop
    from whorl.core.cython_shim import binding

    Result = TypeVar("Result")
    Running: TypeAlias = Generator[Any, None, Result] | Coroutine[Any, Any, Result]
else:
    try:
        from cython import binding
    except ImportError:
        from whorl.core.cython_shim import binding

_OPTIONS = {"name", "context", "eager_start"}
_HAS_EAGER_TASKS = sys.version_info >= (3, 12)

# A call without a loop makes the object for the running loop. With CPython's classes, in C, that spares the
# dictionary for the name. The classes of 3.11 are not used so: they ask the system for the number of the
# process each time.
_asyncio: Any
try:
    import _asyncio
except ImportError:
    _asyncio = None
_OF_RUNNING: Any = _asyncio if sys.version_info >= (3, 12) else None
_FUTURE: Any = getattr(_OF_RUNNING, "Future", None)
_TASK: Any = getattr(_OF_RUNNING, "Task", None)
_NAMES = vars(tasks)  # in which programs put other classes
_NAMES_OF_FUTURES = vars(futures)
_running_loop: Any = getattr(_OF_RUNNING, "_get_running_loop", None)
_NONE: tuple[()] = ()

if not cython.compiled:

    def future_of(cls: Any, none: tuple[()]) -> Any:
        """Return a future of the running loop."""

    def take_arguments(create_task: Any) -> None:
        """Let plain tasks be made in C; uncompiled, this does nothing."""

    def are_default_options(options: dict[str, Any]) -> bool:
        """Return whether these options are those that a task has without them."""
        return not options

    def can_make_stock_task(loop: AnyLoop) -> bool:
        """Return whether no other code takes part in making a task; uncompiled, return False."""
        return False


@binding(True)
def create_future(loop: AnyLoop) -> asyncio.Future[Any]:
    """Return a future of this loop.

    Source: ``asyncio.loop.create_future``.
    """
    if cython.compiled and _NAMES_OF_FUTURES.get("Future") is _FUTURE and _running_loop() is loop:
        return future_of(_FUTURE, _NONE)  # type: ignore[no-any-return]
    return futures.Future(loop=loop)


@binding(True)
def create_task(loop: AnyLoop, coro: Running[Result], **options: Any) -> asyncio.Task[Result]:
    """Return a task that runs a coroutine on this loop.

    `options` are those of the running Python's `asyncio.Task`. All versions accept `eager_start`; it has no
    effect where there are no eager tasks. Source: ``asyncio.loop.create_task``.
    """
    if cython.compiled and are_default_options(options) and can_make_stock_task(loop):
        return tasks.Task(coro, loop=loop)  # type: ignore[arg-type, unused-ignore]
    if loop._closed:
        loop._check_closed()
    if loop._task_factory is not None:
        return task_of_factory(loop, coro, options)  # type: ignore[no-any-return]
    if not _HAS_EAGER_TASKS:
        options.pop("eager_start", None)
    try:
        task: Any = tasks.Task(coro, loop=loop, **options)  # type: ignore[arg-type, unused-ignore]
    except TypeError:
        if options.keys() <= _OPTIONS:
            raise
        task = ask_factory(loop, coro, **options)  # which refuses, in the words of the running Python
    if not cython.compiled and loop._debug and task._source_traceback:
        task._source_traceback.pop()  # this function
    try:
        return task  # type: ignore[no-any-return]
    finally:
        del task  # A traceback through here must not keep the task.


# `inspect` finds here which options it takes.
create_task.__signature__ = inspect.signature(ask_factory)  # type: ignore[attr-defined]
take_arguments(create_task)


@binding(True)
def set_task_factory(loop: AnyLoop, factory: Callable[..., Any] | None) -> None:
    """Let `factory(loop, coro, **options)` make the tasks; None: `asyncio.Task`.

    Source: ``asyncio.loop.set_task_factory``.
    """
    if factory is not None and not callable(factory):
        raise TypeError("task factory must be a callable or None")
    loop._task_factory = factory


@binding(True)
def get_task_factory(loop: AnyLoop) -> Callable[..., Any] | None:
    """Return the task factory, or None.

    Source: ``asyncio.loop.get_task_factory``.
    """
    return loop._task_factory


def name_coroutines(loop_class: type) -> None:
    """Give a loop's coroutines the names that those of asyncio's loop have.

    Reprs of tasks and warnings show them, and programs filter warnings by them.
    """
    for name, method in vars(loop_class).items():
        code = getattr(method, "__code__", None)
        if code is not None and code.co_flags & inspect.CO_COROUTINE:
            method.__qualname__ = getattr(asyncio.SelectorEventLoop, name).__qualname__
