"""Runs inside of a callback: `run_until_complete`, `run_forever` and `asyncio.run` while the loop runs.

    outer run -> turn -> callback -> nested run -> turns, until the nested future is done
                            |                        the rest of the outer turn's batch comes first
                            the callback goes on, with its task, its context and its running loop

The outer frames stand on the stack meanwhile, so the running task is stepped no further. Nothing else can run
in a context that they have entered: it is put off to the end of the nested run.

If another loop of the thread runs instead, the nested run is an ordinary one: the thread leaves that loop for
the time.
"""

from __future__ import annotations

import asyncio
import functools
import weakref
from asyncio import events
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from whorl.aio.loop import nested_turns
from whorl.aio.loop.lifecycle import Running
from whorl.core.loop.loop import Loop

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop

Result = TypeVar("Result")

_loops: weakref.WeakSet[Any] = weakref.WeakSet()
_allows_all = False

#: A nested run begins only if there is room for so many frames: those of a turn and of a report of an error.
_FRAMES = 100


def allow_nested_runs(loop: asyncio.AbstractEventLoop | None = None) -> None:
    """Let a loop be run from inside its own callbacks and tasks; without `loop`, all of Whorl's loops.

    `loop.run_until_complete` and `loop.run_forever` then turn the loop until they are done, while the
    callback that called them waits. Inside of a run, `asyncio.run` and `whorl.run` run their coroutine on the
    running loop. With options for a new loop they make one, and the outer loop stands still meanwhile.
    Another loop of Whorl's may be run in the same way.

    This may be called at any time, also inside of a run, and cannot be taken back. A name that a program has
    imported before (`from asyncio import run`) stays what it was.

    Raises TypeError for an object that is no loop of Whorl's. Source: the package `nest_asyncio`.
    """
    global _allows_all
    if loop is None:
        _allows_all = True
    elif isinstance(loop, Loop) and isinstance(loop, asyncio.AbstractEventLoop):
        _loops.add(loop)
    else:
        raise TypeError(f"a loop of Whorl's was expected, got {loop!r}")
    if not hasattr(asyncio.run, "_is_nesting"):
        asyncio.run = asyncio.runners.run = _nesting(asyncio.run)


def allows_nested_runs(loop: AnyLoop) -> bool:
    """Return whether runs of a loop may be nested; `nest_asyncio.apply` allows all of them."""
    return _allows_all or loop in _loops or hasattr(asyncio, "_nest_patched")


def may_run_inside(loop: AnyLoop) -> bool:
    """Return whether a run may begin while this loop or another one runs in the thread."""
    return allows_nested_runs(loop) and (not loop.is_running() or loop._may_nest())


def run_until_complete(loop: AnyLoop, future: Any) -> Any:
    """Do what the loop's method does, while this loop or another one runs in the thread."""
    if not loop.is_running():
        return nested_turns.call_outside(Running.run_until_complete, loop, future)
    _reserve_frames(_FRAMES)
    if future is asyncio.current_task(loop):
        raise RuntimeError(f"a task cannot run the loop until it is done itself: {future!r}")
    return nested_turns.run_until_complete(loop, future)


def run_forever(loop: AnyLoop) -> None:
    """Do what the loop's method does, while this loop or another one runs in the thread."""
    if not loop.is_running():
        nested_turns.call_outside(Running.run_forever, loop)
        return
    _reserve_frames(_FRAMES)
    nested_turns.run_forever(loop)


def is_inside() -> bool:
    """Return whether the calling code runs in a callback of a loop that may be run from there."""
    loop: Any = events._get_running_loop()
    return isinstance(loop, Loop) and loop.is_running() and may_run_inside(loop)  # type: ignore[arg-type]


def run_inside(main: Awaitable[Result], debug: bool | None, run: Callable[..., Result] | None) -> Result:
    """Do what `asyncio.run` does on the running loop or, if `run` is given, on the loop that it makes."""
    if run is not None:
        return nested_turns.call_outside(functools.partial(run, main, debug=debug))  # type: ignore[no-any-return]
    loop: Any = events._get_running_loop()
    former = loop.get_debug()
    task: Any = asyncio.ensure_future(main, loop=loop)
    try:
        if debug is not None:
            loop.set_debug(debug)
        result: Result = loop.run_until_complete(task)
        return result
    finally:
        try:
            if not task.done():
                _cancel(loop, task)
        finally:
            if debug is not None:
                loop.set_debug(former)


def _cancel(loop: Any, task: Any) -> None:
    """Cancel the task of a run that was left, and wait for its end. An error of that is only reported."""
    task.cancel()
    loop.run_until_complete(asyncio.wait([task]))
    if not task.cancelled() and task.exception() is not None:
        context = {"message": "unhandled exception as a nested run ended", "task": task}
        loop.call_exception_handler({**context, "exception": task.exception()})


def _nesting(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return `asyncio.run`, but inside of a callback of a loop that allows it, it runs there."""

    @functools.wraps(run)
    def nesting_run(main: Any, *, debug: bool | None = None, **options: Any) -> Any:
        if not is_inside():
            return run(main, debug=debug, **options)
        makes_loop = options.get("loop_factory") is not None
        return run_inside(main, debug, functools.partial(run, **options) if makes_loop else None)

    nesting_run._is_nesting = True  # type: ignore[attr-defined]
    return nesting_run


def _reserve_frames(count: int) -> None:
    """Raise RecursionError if there is no room for so many frames, called from C.

    A task whose step finds no room never goes on, and who waits for it would wait for ever.
    """
    if count:
        next(map(_reserve_frames, (count - 1,)))  # by C, which has a limit of its own since 3.12
