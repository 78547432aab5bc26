"""The loops that run: who is told of each, and the numbers by which exporters name them."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from whorl.core.loop.lifecycle import set_run_listener

Listener = Callable[[Any], object]

logger: logging.Logger = logging.getLogger("whorl.inspector")

_lock = threading.RLock()  # guards the list of listeners; a destructor may run inside
_listeners: tuple[Listener, ...] = ()
_numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_next_number = itertools.count(1)
_inherited: list[weakref.ref[Any]] = []  # the loops that had numbers in the parent of this forked process


def add_listener(listener: Listener) -> None:
    """Call `listener` with each loop that begins to run, in its thread. Adding it again does nothing."""
    global _listeners
    with _lock:
        if listener not in _listeners:
            _listeners = (*_listeners, listener)
        set_run_listener(_loop_runs)


def remove_listener(listener: Listener) -> None:
    """Call `listener` no more. One that is not known is ignored."""
    global _listeners
    with _lock:
        _listeners = tuple(other for other in _listeners if other != listener)
        if not _listeners:
            set_run_listener(None)


def _loop_runs(loop: Any) -> None:
    """Tell the listeners of a loop. It is about to run, so their errors are only logged."""
    for listener in _listeners:
        try:
            listener(loop)
        except Exception:
            with contextlib.suppress(Exception):
                logger.exception("A loop is not watched")


def number_of(loop: Any) -> int:
    """Return the number of a loop, which no other loop of the process gets; any thread may call this."""
    number = _numbers.get(loop)
    return _numbers.setdefault(loop, next(_next_number)) if number is None else number


def numbered_loops() -> list[Any]:
    """Return the loops of this process that have numbers."""
    for reference in _inherited:
        loop = reference()
        if loop is not None and loop._is_in_creating_process():
            number_of(loop)  # It goes on in this process, by `Loop.fork`.
    return [loop for reference in _numbers.keyrefs() if (loop := reference()) is not None]


def _fork_ended() -> None:
    """Begin to number anew in a forked child: the loops of its parent do not run there."""
    global _lock, _numbers, _next_number
    _lock = threading.RLock()
    _inherited.extend(_numbers.keyrefs())
    _numbers = weakref.WeakKeyDictionary()
    _next_number = itertools.count(1)


os.register_at_fork(after_in_child=_fork_ended)
