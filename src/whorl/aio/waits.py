"""What one task awaits until an event wakes it: a future without the price of one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextvars import Context
from types import BuiltinMethodType
from typing import TYPE_CHECKING, Any, cast

from whorl.core.callback import call_in_context, new_callback

try:
    import cython
except ImportError:
    from whorl.core import uncompiled as cython

if TYPE_CHECKING:
    from whorl.core.loop import Loop

if not cython.compiled:

    def is_builtin(callback: Any) -> bool:
        """Whether a callback is a method written in C."""
        return type(callback) is BuiltinMethodType


class _NoLoop:
    """Stands for a loop where a future that is done already asks for one."""

    def get_debug(self) -> bool:
        """No."""
        return False


def _woken() -> asyncio.Future[None]:
    future: asyncio.Future[None] = asyncio.Future(loop=cast("asyncio.AbstractEventLoop", _NoLoop()))
    future.set_result(None)
    return future


#: What the tasks of CPython and of ours are told is done when nothing went wrong. They ask a future of this
#: very class for its result without a call by name, which would cost as much as the rest of waking them.
WOKEN: Any = (_woken(),)


class Wait:
    """Something that a single task may await, woken by whoever made it."""

    __slots__ = (
        "_asyncio_future_blocking",
        "_callback",
        "_cancelled",
        "_context",
        "_done",
        "_error",
        "_message",
        "_runner",
    )

    def __init__(self, loop: Loop) -> None:
        self._runner = loop
        self._callback: Callable[[Any], object] | None = None
        self._context: Context | None = None
        self._done = False
        self._cancelled = False
        self._message: Any = None
        self._error: BaseException | None = None
        self._asyncio_future_blocking = False

    def _reset(self) -> None:
        """Be as new."""
        self._callback = self._context = None
        self._done = self._cancelled = self._asyncio_future_blocking = False
        self._message = self._error = None

    # For the task: what it asks of a future.

    def __await__(self) -> Any:
        return self

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._done:
            raise StopIteration
        self._asyncio_future_blocking = True
        return self

    def get_loop(self) -> Loop:
        """The loop it belongs to."""
        return self._runner

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Context | None = None) -> None:
        """Call this when the wait is over."""
        self._callback = callback
        self._context = context

    def done(self) -> bool:
        """Whether the wait is over."""
        return self._done

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._cancelled

    def result(self) -> None:
        """Raises what went wrong."""
        if not self._done:
            raise asyncio.InvalidStateError("Result is not ready.")
        if self._cancelled:
            raise asyncio.CancelledError() if self._message is None else asyncio.CancelledError(self._message)
        if self._error is not None:
            error, self._error = self._error, None  # Its traceback refers to those who refer to this.
            raise error

    def cancel(self, msg: Any = None) -> bool:
        """Wait no longer."""
        if self._done:
            return False
        self._done = self._cancelled = True
        self._message = msg
        self._wake_soon()
        return True

    # For whoever made it, once `_done` is set.

    def _report(self, callback: Any) -> Any:
        """The arguments for the callback."""
        if is_builtin(callback) and self._error is None and not self._cancelled:
            return WOKEN
        return (self,)

    def _wake_soon(self) -> None:
        """Have the task stepped in the next turn."""
        callback = self._callback
        self._callback = None
        if callback is None:
            return
        if self._runner._debug:
            self._runner.call_soon(callback, *self._report(callback), context=self._context)
        else:
            entry = new_callback(self._runner, callback, self._report(callback), self._context)
            self._runner._enqueue(entry)

    def _wake_now(self) -> None:
        """Step the task inside whatever runs now."""
        callback = self._callback
        self._callback = None
        if callback is None:
            return
        if self._runner._debug or self._context is None:
            self._runner.call_soon(callback, *self._report(callback), context=self._context)
        else:
            call_in_context(self._context, callback, self._report(callback))
