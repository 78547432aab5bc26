"""The awaitable of one task that waits for an event: a future that is never done, and is used again.

A task of CPython's waits for futures of CPython's class without a call by name. For any other object these
calls cost as much as the rest of a wait. Making such a future for each wait would cost the same. So the code
that wakes the task takes its callback out of the future and calls it, and the future is like new.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from types import BuiltinMethodType
from typing import TYPE_CHECKING, Any

from whorl.core.callback import Callback, new_callback

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

_asyncio: Any
try:
    import _asyncio
    from _asyncio import Future as _Future  # whatever a program puts in the place of `asyncio.Future`
except ImportError:
    _asyncio = None
    from asyncio import Future as _Future

if TYPE_CHECKING:
    from whorl.core.loop.loop import Loop

Future: Any = _Future
# Without a loop a future is the running loop's, which is said in no dictionary. In 3.11 each such future asks
# the system for the number of the process.
_running_loop: Any = getattr(_asyncio, "_get_running_loop", None) if sys.version_info >= (3, 12) else None
NO_ARGUMENTS: tuple[()] = ()
PENDING = "PENDING"
#: Since 3.13 a task can take a request to cancel it back before it has seen it.
TAKES_CANCEL_BACK = sys.version_info >= (3, 13)
#: Since 3.14 a future knows which tasks await it.
AWAITED_BY = sys.version_info >= (3, 14)
discard_awaiter: Any = getattr(asyncio, "future_discard_from_awaited_by", None)

if not cython.compiled:
    from whorl.core.callback import call_with_one
    from whorl.core.threads import HAS_GIL

    def functions_behind(name: str) -> Any:
        """Return the C functions behind an attribute; uncompiled, there are none."""

    def is_pending(future: Any) -> bool:
        """Return whether a future is not done."""
        return bool(future._state == PENDING)

    def block(future: Any) -> None:
        """Do the first step of awaiting a future."""
        future._asyncio_future_blocking = True

    def taken_callback(future: Any) -> Any:
        """Take the callback out of a future: it and its context; None if it is not just one of a task's."""
        callbacks = future._callbacks
        if not callbacks or len(callbacks) != 1 or type(callbacks[0][0]) is not BuiltinMethodType:
            return None
        future.remove_done_callback(callbacks[0][0])
        return callbacks[0]

    def bound_to(callback: Any) -> Any:
        """Return the object of a method."""
        return callback.__self__

    def has_one_other_reference(wait: Any) -> bool:
        """Return whether the future of a wait has no other reference; uncompiled this is unknown."""
        return False

    def new_future(loop: Loop) -> Any:
        """Return a new future of CPython's class."""
        return Future(loop=loop)


class _NoLoop:
    """A stand-in for the loop of a future that is done from the start."""

    def get_debug(self) -> bool:
        """Return False."""
        return False


def done_future() -> Any:
    """Return a future that is done."""
    future: Any = Future(loop=_NoLoop())
    future.set_result(None)
    return future


STATE = functions_behind("_state")
BLOCKING = functions_behind("_asyncio_future_blocking")
CALLBACKS = functions_behind("_callbacks")
remove_callback: Any = Future.remove_done_callback

WOKEN: tuple[Any] = (done_future(),)  # the done future that tasks get


class ReusableFuture:
    """An awaitable for a single task, which its maker wakes."""

    def __init__(self, loop: Loop) -> None:
        self._set_up(loop)

    def _set_up(self, loop: Loop) -> None:
        self._event_loop = loop
        self._future: Any = new_future(loop)
        self._done = False
        self._is_awaited = False  # whether the future may have a callback
        self._error: BaseException | None = None
        # A task changes a bit of it, so without the GIL tasks of two threads must not get the same one.
        self._woken: tuple[Any] = WOKEN if HAS_GIL else (done_future(),)

    def _reset(self) -> None:
        """Be as new."""
        if self._is_awaited or not has_one_other_reference(self) or not is_pending(self._future):
            self._future = new_future(self._event_loop)
        self._done = self._is_awaited = False
        self._error = None

    # For the coroutine.

    def __await__(self) -> Any:
        return self

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        future = self._future
        if not self._done and is_pending(future):
            self._is_awaited = True
            block(future)
            return future
        if not is_pending(future):
            self._look_at_future()
        if self._error is not None:
            error, self._error = self._error, None  # Its traceback refers to objects that refer to this one.
            raise error
        raise StopIteration

    def _look_at_future(self) -> None:
        """Raise the future's exception, perhaps after the task was woken and before it went on.

        A task that was cancelled meanwhile has cancelled the future.
        """
        if TAKES_CANCEL_BACK and self._done and self._future.cancelled():
            task = asyncio.current_task()
            if task is not None and not task.cancelling():
                return
        self._future.result()

    # For programs that look at the awaitable of a task.

    def done(self) -> bool:
        """Return whether the wait is over."""
        return self._done or bool(self._future.done())

    def cancelled(self) -> bool:
        """Return whether the task was cancelled before it was woken."""
        return not self._done and bool(self._future.cancelled())

    def cancel(self, msg: Any = None) -> bool:
        """Wait no longer."""
        return not self._done and bool(self._future.cancel(msg))

    # For its maker.

    def _is_wanted(self) -> bool:
        """Return whether a task may still be waiting."""
        return not self._done and is_pending(self._future)

    # The same, once `_done` is set.

    def _take_callback(self) -> Any:
        """Return the callable that wakes the task, and its context; None if the future itself calls it."""
        if self._event_loop._debug or self._event_loop._run_hook is not None:
            return None  # An observer, or a nested run, sees the call.
        taken = taken_callback(self._future)
        if taken is not None:
            self._is_awaited = False
            if AWAITED_BY:
                discard_awaiter(self._future, bound_to(taken[0]))
        return taken

    def _finish(self) -> None:
        """Let the future wake its awaiters."""
        if is_pending(self._future):
            self._future.set_result(None)

    def _wake_soon(self) -> None:
        """Step the task in the next turn."""
        taken = self._take_callback()
        if taken is None:
            self._finish()
        else:
            entry = new_callback(self._event_loop, taken[0], self._woken, taken[1])
            self._event_loop._enqueue(entry)

    def _is_stepped_now(self) -> bool:
        """Step the task inside the running callback, and return whether it was possible."""
        taken = self._take_callback()
        if taken is not None and self._event_loop._observed:
            self._event_loop._run_step(taken[1], taken[0], self._woken[0])
        elif taken is not None:
            call_with_one(taken[1], taken[0], self._woken[0])
        return taken is not None

    def _first_call(self) -> Callback | None:
        """Let the future wake all awaiters but the first, and return the call that wakes the first."""
        callbacks = self._future._callbacks
        if callbacks:
            self._future.remove_done_callback(callbacks[0][0])
        self._finish()
        if not callbacks:
            return None
        return new_callback(self._event_loop, callbacks[0][0], (self._future,), callbacks[0][1])
