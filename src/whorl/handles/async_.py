"""Async: how another thread, or a signal handler, has a function called by the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.core.callback import call_in_context, current_context
from whorl.core.handle import Handle
from whorl.core.states import Life

if TYPE_CHECKING:
    from typing import Self

    from whorl.core.loop import Loop

OPEN = int(Life.OPEN)


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
        self._activate()

    def send(self) -> None:
        """Have the callback called after the next poll; from any thread and from signal handlers.

        Several sends before the call are one: what is done before `send` is seen by a call that
        begins afterwards. After `close` this does nothing, so that a thread may come late.
        """
        if self._life == OPEN and not self._sent:
            self._sent = True
            loop: Any = self._loop
            loop._arrive(self)

    def _execute(self) -> None:
        # Two threads may both have found `_sent` false and queued the handle: the second entry is
        # idle. The flag falls before the call, so that a send during the call causes another one.
        if not self._sent:
            return
        self._sent = False
        if self._life == OPEN and self._callback is not None:
            call_in_context(self._context, self._callback, (self,))

    def _release(self) -> None:
        self._callback = None
        self._context = None
