"""Callbacks run by `asyncio.Handle._run`, if a program has replaced that method.

Tools that time every callback replace it. The loop looks at it when a run begins.
"""

from __future__ import annotations

from asyncio import events
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.core.callback import Callback, GuardedCallback

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop
    from whorl.core.callback import Runnable

_asyncios: Any = events.Handle._run


def patched_run() -> Callable[[Any, Runnable], object] | None:
    """Return the function by which a loop is to run its entries, or None if it runs them itself."""
    return None if events.Handle._run is _asyncios else _run_as_handle


def _run_as_handle(loop: AnyLoop, entry: Runnable) -> None:
    """Run an entry as asyncio's loop runs its handles; an entry that is no callback is wrapped in one."""
    run: Any = events.Handle._run
    if isinstance(entry, GuardedCallback) or not isinstance(entry, Callback):
        run(events.Handle(loop._run_entry, (entry,), loop))
    elif not entry._cancelled:
        run(entry)
