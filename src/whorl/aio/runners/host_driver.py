"""Driving a loop for very many turns: as any loop is driven, in fewer steps for each turn."""

from __future__ import annotations

import sys
from asyncio.events import _set_running_loop
from typing import Any

from whorl.aio.loop.lifecycle import track_origins
from whorl.aio.runners.driver import Driver

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if not cython.compiled:

    def first_hook() -> Any:
        """Return the hook for an asynchronous generator that begins."""
        return sys.get_asyncgen_hooks().firstiter

    def last_hook() -> Any:
        """Return the hook for an asynchronous generator that nobody finished."""
        return sys.get_asyncgen_hooks().finalizer

    def set_hooks(first: Any, last: Any) -> None:
        """Set both hooks."""
        sys.set_asyncgen_hooks(first, last)


def deadlines(loop: Any, after: int, until: int) -> set[int]:
    """Return when timers of a loop fall due, by its own clock: after one time, and not after the other."""
    found = set()
    for timer in loop._timer_queue.timers():
        due = timer._deadline_ns
        if after < due <= until and not timer._cancelled:
            found.add(due)
    return found


class HostDriver(Driver):
    """Runs a loop one turn at a time; its hooks are made once."""

    def __init__(self, loop: Any) -> None:
        self._first: Any = loop._asyncgen_firstiter_hook
        self._last: Any = loop._asyncgen_finalizer_hook
        self._former_first: Any = None
        self._former_last: Any = None
        self._has_hooks = False
        Driver.__init__(self, loop)
        # Signals need not end a sleep here: a host with a signal that waits gets a turn.
        self._loop._arms_signals = False

    def rest_ns(self) -> int:
        """Return the nanoseconds until a turn is due without an event, as `timeout` does; -1: no limit."""
        return self._rest_ns()

    def _enter(self) -> None:
        loop = self._loop
        if loop._debug:
            track_origins(loop, True)
        self._former_first, self._former_last = first_hook(), last_hook()
        self._has_hooks = True
        set_hooks(self._first, self._last)
        _set_running_loop(loop)

    def _exit(self) -> None:
        loop = self._loop
        if loop._saved_origin_depth is not None:
            track_origins(loop, False)
        if self._has_hooks:
            set_hooks(self._former_first, self._former_last)
            self._has_hooks = False
