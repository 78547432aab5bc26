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
import contextlib
import functools
import sys
import weakref
from asyncio import events, tasks
from asyncio.base_events import _run_until_complete_cb  # type: ignore[attr-defined]
from collections.abc import Awaitable, Callable, Iterator
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from whorl.aio.interop import handle_run_hook
from whorl.core.handle import Handle
from whorl.core.loop.loop import Loop
from whorl.handles.watchers.loop_watchers import LoopWatcher

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop

Result = TypeVar("Result")

_loops: weakref.WeakSet[Any] = weakref.WeakSet()
_allows_all = False

#: A nested run begins only if there is room for so many frames: those of a turn and of a report of an error.
_FRAMES = 100

#: Where an entry, or a handle, keeps the contexts in which it calls.
_CONTEXTS = ("_context", "_read_context", "_receive_context", "_connection_context")


def _swap_in_dictionary(loop: Any, task: Any) -> Any:
    """Make another task the current one of a loop, or none; return the one before."""
    current: dict[Any, Any] = tasks._current_tasks  # type: ignore[attr-defined, unused-ignore]
    former = current.pop(loop, None)
    if task is not None:
        current[loop] = task
    return former


# The dictionary has the current task of each loop. Since 3.14 it has those of asyncio's class in Python only,
# and each thread has its own.
_SWAPS: list[Callable[[Any, Any], Any]] = [_swap_in_dictionary]
if sys.version_info >= (3, 14):
    _SWAPS.append(tasks._swap_current_task)  # type: ignore[attr-defined, unused-ignore]


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
        with _outside():
            return loop.run_until_complete(future)
    _reserve_frames(_FRAMES)
    if future is asyncio.current_task(loop):
        raise RuntimeError(f"a task cannot run the loop until it is done itself: {future!r}")
    with _outside(), _entered(loop):
        is_ours = not asyncio.isfuture(future)
        awaited: Any = asyncio.ensure_future(future, loop=loop)
        if is_ours:
            awaited._log_destroy_pending = False
        ended: list[Any] = []
        awaited.add_done_callback(ended.append)
        try:
            _turn_inside(loop, ended, True)
        except BaseException:
            if is_ours and awaited.done() and not awaited.cancelled():
                awaited.exception()  # The caller gets it from the loop; the task need not complain.
            raise
        finally:
            awaited.remove_done_callback(ended.append)
    if not awaited.done():
        raise RuntimeError("Event loop stopped before Future completed.")
    return awaited.result()


def run_forever(loop: AnyLoop) -> None:
    """Do what the loop's method does, while this loop or another one runs in the thread."""
    if not loop.is_running():
        with _outside():
            loop.run_forever()
        return
    _reserve_frames(_FRAMES)
    with _outside(), _entered(loop):
        _turn_inside(loop, [], False)


def is_inside() -> bool:
    """Return whether the calling code runs in a callback of a loop that may be run from there."""
    loop: Any = events._get_running_loop()
    return isinstance(loop, Loop) and loop.is_running() and may_run_inside(loop)  # type: ignore[arg-type]


def run_inside(main: Awaitable[Result], debug: bool | None, run: Callable[..., Result] | None) -> Result:
    """Do what `asyncio.run` does on the running loop, or by `run` if that makes another one."""
    if run is not None:
        with _outside():
            return run(main, debug=debug)
    loop: Any = events._get_running_loop()
    former = loop.get_debug()
    task: Any = asyncio.ensure_future(main, loop=loop)
    try:
        if debug is not None:
            loop.set_debug(debug)
        result: Result = loop.run_until_complete(task)
        return result
    finally:
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                loop.run_until_complete(task)
        if debug is not None:
            loop.set_debug(former)


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


# Turning.


def _turn_inside(loop: AnyLoop, ended: list[Any], waits: bool) -> None:
    """Turn until something stands in `ended`, or the loop is stopped.

    If the caller `waits` for a future, a `stop` ends the outer runs, too, and an earlier one ends them alone.
    Else the `stop` ends this run alone, after one turn if it came earlier.
    """
    put_off: list[Any] = []
    run: Any = handle_run_hook.patched_run() or type(loop)._run_entry

    def run_or_put_off(loop: AnyLoop, entry: Any) -> None:
        if not _is_entered(entry):
            run(loop, entry)
        elif not isinstance(entry, Handle):
            put_off.append(entry)
        elif not isinstance(entry, LoopWatcher) and not any(entry is other for other in put_off):
            put_off.append(entry)  # A watcher is called in each turn; another handle once for all its events.

    states: list[Any] = []
    is_watched = False
    outermost: Any = loop._outermost
    try:
        # The outermost run ends by `stop` when its future is done. It shall do so when this run has ended.
        is_watched = outermost is not None and outermost.remove_done_callback(_run_until_complete_cb)
        loop._begin_nested(states, waits)
        loop._run_hook = run_or_put_off
        copy_context().run(_turn, loop, ended)
        if not waits:
            loop._stopping = False
    finally:
        loop._end_nested(states, put_off)
        if is_watched and outermost.done():
            _run_until_complete_cb(outermost)
        elif is_watched:
            outermost.add_done_callback(_run_until_complete_cb)


def _turn(loop: AnyLoop, ended: list[Any]) -> None:
    while not ended:
        loop._run_once()
        if loop._stopping:
            return


def _reserve_frames(count: int) -> None:
    """Raise RecursionError if there is no room for so many frames.

    A task whose step finds no room never goes on, and who waits for it would wait for ever.
    """
    if count:
        _reserve_frames(count - 1)


def _is_entered(entry: Any) -> bool:
    """Return whether an outer frame has entered a context in which an entry calls."""
    for holder in (entry, getattr(entry, "reader", None), getattr(entry, "writer", None)):
        for name in _CONTEXTS:
            context = getattr(holder, name, None)
            if isinstance(context, Context):
                try:
                    context.run(int)
                except RuntimeError:
                    return True
    return False


# The state of the thread.


@contextlib.contextmanager
def _outside() -> Iterator[None]:
    """Leave the running loop and its task, as if no loop ran in this thread; then enter both again."""
    running: Any = events._get_running_loop()
    hooks = sys.get_asyncgen_hooks()
    signals = getattr(getattr(running, "_host", None), "signals", None)
    main_loop = getattr(signals, "main_loop", None)
    former = [] if running is None else [(swap, swap(running, None)) for swap in _SWAPS]
    events._set_running_loop(None)
    try:
        yield
    finally:
        events._set_running_loop(running)
        for swap, task in former:
            swap(running, task)
        sys.set_asyncgen_hooks(*hooks)
        if signals is not None:
            signals.main_loop = main_loop


@contextlib.contextmanager
def _entered(loop: AnyLoop) -> Iterator[None]:
    """Make a loop the running one of the thread, without a task."""
    events._set_running_loop(loop)
    former = [(swap, swap(loop, None)) for swap in _SWAPS]
    sys.set_asyncgen_hooks(loop._asyncgen_firstiter_hook, loop._asyncgen_finalizer_hook)
    try:
        yield
    finally:
        for swap, task in former:
            swap(loop, task)
        events._set_running_loop(None)
