"""The turns of a nested run, and the running loop and task of the thread, which are left for the time.

This is compiled so that no handler of a signal runs between two of its steps. An interrupt comes before the
turns, in them or after them, and all is as before.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import events, tasks
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

from whorl.aio.interop import handle_run_hook
from whorl.aio.loop.lifecycle import _run_until_complete_cb  # type: ignore[attr-defined]
from whorl.core.loop.loop import Loop
from whorl.core.states import READABLE, WRITABLE
from whorl.handles.watchers.loop_watchers import LoopWatcher

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop

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
SWAPS: list[Callable[[Any, Any], Any]] = [_swap_in_dictionary]
if sys.version_info >= (3, 14):
    SWAPS.append(tasks._swap_current_task)  # type: ignore[attr-defined, unused-ignore]


def call_outside(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function as if no loop ran in this thread."""
    former = _leave(None)
    try:
        return function(*args)
    finally:
        _come_back(former)


def run_until_complete(loop: AnyLoop, future: Any) -> Any:
    """Turn a loop that runs until a future is done; return its result.

    A `stop` ends the outer runs, too, and an earlier one ends them alone.
    """
    former = _leave(loop)
    try:
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
    finally:
        _come_back(former)
    if not awaited.done():
        raise RuntimeError("Event loop stopped before Future completed.")
    return awaited.result()


def run_forever(loop: AnyLoop) -> None:
    """Turn a loop that runs until `stop`. It ends this run alone, after one turn if it came earlier."""
    former = _leave(loop)
    try:
        _turn_inside(loop, [], False)
    finally:
        _come_back(former)


def _turn_inside(loop: AnyLoop, ended: list[Any], keeps_stop: bool) -> None:
    """Turn until something stands in `ended`, or the loop is stopped."""
    put_off: list[Any] = []
    run: Any = handle_run_hook.patched_run() or type(loop)._run_entry

    def run_or_put_off(loop: AnyLoop, entry: Any) -> None:
        if not _ends_outer_run(entry) and not _is_entered(entry):
            run(loop, entry)
        elif not isinstance(entry, LoopWatcher):  # A watcher is called in each turn.
            put_off.append(entry)

    states: list[Any] = []
    try:
        loop._begin_nested(states, keeps_stop)
        loop._run_hook = run_or_put_off
        copy_context().run(_turn, loop, ended)
    finally:
        if not keeps_stop:
            loop._stopping = False
        loop._end_nested(states, put_off)


def _turn(loop: AnyLoop, ended: list[Any]) -> None:
    while not ended:
        loop._run_once()
        if loop._stopping:
            return


def _ends_outer_run(entry: Any) -> bool:
    """Return whether an entry stops the outermost run, whose future is done; that run ends after this one."""
    return getattr(entry, "_callback", None) is _run_until_complete_cb


def _is_entered(entry: Any) -> bool:
    """Return whether an outer frame has entered a context in which an entry calls."""
    callers = [entry]
    if getattr(entry, "is_descriptor_watch", False):
        seen = entry._seen
        callers = [entry.reader if seen & ~WRITABLE else None, entry.writer if seen & ~READABLE else None]
    is_entered = False
    for caller in callers:
        for name in _CONTEXTS:
            context = getattr(caller, name, None)
            if isinstance(context, Context):
                try:
                    context.run(int)
                except RuntimeError:
                    is_entered = True
    return is_entered


# The state of the thread.


def _leave(loop: AnyLoop | None) -> tuple[Any, ...]:
    """Leave the running loop and its task. Make `loop` the running one, without a task, or none.

    Return what `_come_back` takes.
    """
    running: Any = events._get_running_loop()
    if isinstance(running, Loop):
        running._held.push_all()  # Its callback may take long to end.
    signals = getattr(getattr(running, "_host", None), "signals", None)
    former = (
        (running, [] if running is None else [swap(running, None) for swap in SWAPS]),
        (signals, getattr(signals, "main_loop", None)),
        sys.get_asyncgen_hooks(),
    )
    events._set_running_loop(loop)
    if loop is None:
        return (*former, (None, []))
    sys.set_asyncgen_hooks(loop._asyncgen_firstiter_hook, loop._asyncgen_finalizer_hook)
    return (*former, (loop, [swap(loop, None) for swap in SWAPS]))


def _come_back(former: tuple[Any, ...]) -> None:
    """Undo `_leave`."""
    (running, its_tasks), (signals, main_loop), hooks, (loop, tasks_inside) = former
    for index in range(len(tasks_inside)):
        SWAPS[index](loop, tasks_inside[index])
    events._set_running_loop(running)
    for index in range(len(its_tasks)):
        SWAPS[index](running, its_tasks[index])
    sys.set_asyncgen_hooks(*hooks)
    if signals is not None:
        signals.main_loop = main_loop
