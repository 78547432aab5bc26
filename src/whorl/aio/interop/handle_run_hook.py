"""Callbacks run by `asyncio.Handle._run` when somebody has put a function of their own there.

Tools that time every callback do so. It is looked at when a run begins.
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
    """Run an entry as asyncio's loop runs its handles; what is no callback is shown in one."""
    run: Any = events.Handle._run
    if isinstance(entry, GuardedCallback) or not isinstance(entry, Callback):
        run(events.Handle(loop._run_entry, (entry,), loop))
    elif not entry._cancelled:
        run(entry)
