"""Async: how another thread, or a signal handler, has a function called by the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.core.callback import current_context
from whorl.core.handle import Handle
from whorl.core.states import Life

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from typing import Self

    from whorl.core.loop.loop import Loop

OPEN = int(Life.OPEN)


def put_last(handles: dict[Any, None], waiting: list[Any], first: int) -> None:
    """Put those of `waiting` from `first` on behind all others."""
    for index in range(first, len(waiting)):
        if waiting[index] in handles:
            del handles[waiting[index]]
            handles[waiting[index]] = None


class Async(Handle):
    """Wakes the loop and has it call `callback(handle)` (libuv: ``uv_async_t``).

    It is active from the beginning until it is closed: it keeps the loop alive. Without a
    callback it only wakes the loop.
    """

    __slots__ = ("_callback", "_context", "_sent")

    def __init__(self, loop: Loop, callback: Callable[[Self], object] | None = None) -> None:
        if callback is not None and not callable(callback):
            raise TypeError(f"a callable object was expected by Async(), got {callback!r}")
        super().__init__(loop)
        self._callback: Callable[[Any], object] | None = callback
        self._context: Any = current_context()
        self._sent = False  # whether a call is owed
        loop._async_handles[self] = None
        loop._asyncs_made += 1
        self._activate()

    def send(self) -> None:
        """Have the callback called after the next poll; from any thread and from signal handlers.

        Several sends before the call are one: what is done before `send` is seen by a call that
        begins afterwards. After `close` this does nothing, so that a thread may come late.
        """
        if self._life == OPEN and not self._sent:
            self._sent = True
            loop: Any = self._loop
            loop._async_sent(self)

    def _execute(self) -> None:
        """Call all asyncs of the loop that were sent, in libuv's order: that in which they were made.

        Those made during a call come behind that one from then on, before the others that are left.
        """
        loop: Any = self._loop
        handles: dict[Any, None] = loop._async_handles
        loop._sent_async = None  # first: who is sent from now on sets it again
        waiting = list(handles)
        made = loop._asyncs_made
        try:
            for index in range(len(waiting)):
                handle = waiting[index]
                if handle._sent:
                    handle._call()
                    if loop._asyncs_made != made:
                        put_last(handles, waiting, index + 1)
                        made = loop._asyncs_made
            if loop._sent_async is not None:
                self._forget_sent()
        except BaseException:
            loop._async_sent(self)  # for those that are left
            raise

    def _forget_sent(self) -> None:
        """Take no turn for asyncs that were sent, and have been called or closed."""
        loop: Any = self._loop
        loop._sent_async = None  # first: who is sent from now on sets it again
        for handle in list(loop._async_handles):
            if handle._sent:
                loop._sent_async = handle
                break

    def _call(self) -> None:
        self._sent = False  # before the call, so that a send during the call causes another one
        if self._life == OPEN and self._callback is not None:
            call_with_one(self._context, self._callback, self)

    def _release(self) -> None:
        loop: Loop = self._loop  # type: ignore[assignment]  # each loop is one
        loop._async_handles.pop(self, None)
        if self._sent:
            self._forget_sent()
        self._callback = None
        self._context = None


if not cython.compiled:
    from whorl.core.callback import call_with_one
