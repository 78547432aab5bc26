"""Async: lets another thread, or a signal handler, call a function in the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.core import states
from whorl.core.callback import current_context
from whorl.core.handle import Handle

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from typing import Self

    from whorl.core.loop.loop import Loop


def put_last(handles: dict[Any, None], waiting: list[Any], first: int) -> None:
    """Move the handles of `waiting` from index `first` on behind all others."""
    for index in range(first, len(waiting)):
        if waiting[index] in handles:
            del handles[waiting[index]]
            handles[waiting[index]] = None


class Async(Handle):
    """A handle that wakes the loop and lets it call `callback(handle)` (libuv: ``uv_async_t``).

    It is active from the beginning until it is closed: it keeps the loop alive. Without a
    callback it only wakes the loop.
    """

    def __init__(self, loop: Loop, callback: Callable[[Self], object] | None = None) -> None:
        if callback is not None and not callable(callback):
            raise TypeError(f"a callable object was expected by Async(), got {callback!r}")
        super().__init__(loop)
        self._callback: Callable[[Any], object] | None = callback
        self._context: Any = current_context()
        self._sent = False  # whether it was sent and has not been called
        loop._async_handles[self] = None
        loop._asyncs_made += 1
        self._activate()

    def send(self) -> None:
        """Let the callback be called after the next poll; from any thread and from signal handlers.

        Several sends before the call count as one. The call begins after the last of them, so it sees all
        changes made before it. After `close` this does nothing, so a thread may come late.
        """
        barrier()  # The call that clears `_sent` either sees what was stored before, or this sees it cleared.
        if self._handle_state == states.OPEN and not self._sent:
            self._sent = True
            loop: Any = self._loop
            loop._async_sent(self)

    def _execute(self) -> None:
        """Call all sent Asyncs of the loop in libuv's order, in which they were made.

        An Async made during a call comes right behind the called one from then on, before the rest.
        """
        loop: Any = self._loop
        handles: dict[Any, None] = loop._async_handles
        taken_async(loop)  # cleared first: a later send sets it again
        barrier()
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
            if loop._has_sent_async:
                self._forget_sent()
        except BaseException:
            loop._async_sent(self)  # for the Asyncs that are left
            raise

    def _forget_sent(self) -> None:
        """Take no turn for sent Asyncs that have been called or closed by now."""
        loop: Any = self._loop
        taken_async(loop)  # cleared first: a later send sets it again
        barrier()
        for handle in list(loop._async_handles):
            if handle._sent:
                put_async(loop, handle)
                break

    def _call(self) -> None:
        self._sent = False  # before the call, so that a send during the call causes another one
        barrier()
        if self._handle_state == states.OPEN and self._callback is not None:
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
    from whorl.core.loop.execution import put_async, taken_async
    from whorl.core.threads import barrier
