"""Handles and requests: the things that keep a loop alive.

A *handle* is long-lived: it is started and stopped, and it must be closed. Closing has two
steps: `close` stops it and gives its resources back at once, and in the closing phase of that
turn the callback runs and the loop lets go of it. A *request* is one operation in flight.

The loop stays alive while there is an active handle that is referenced, a request in flight, or
a handle being closed.

    OPEN --close()--> CLOSING --closing phase--> CLOSED
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.core.callback import AbstractLoop, Runnable
from whorl.core.states import Life

if TYPE_CHECKING:
    from typing import Self

OPEN = int(Life.OPEN)
CLOSING = int(Life.CLOSING)
CLOSED = int(Life.CLOSED)


class Handle(Runnable):
    """A long-lived thing of a loop (libuv: ``uv_handle_t``).

    `data` is the user's. A handle starts inactive and referenced.
    """

    __slots__ = (
        "__weakref__",
        "_active",
        "_close_callback",
        "_life",
        "_listed",
        "_loop",
        "_referenced",
        "data",
    )

    def __init__(self, loop: AbstractLoop) -> None:
        loop._check_closed()
        self._set_up(loop)
        self._loop._handle_opened(self)

    def _set_up(self, loop: AbstractLoop) -> None:
        """Set the attributes: all that `__init__` does but for having the loop know of the handle."""
        self._loop = loop
        self.data: Any = None
        self._life = OPEN
        self._active = False
        self._referenced = True
        self._listed = False  # whether it is among the loop's open handles
        self._close_callback: Callable[[Any], object] | None = None

    @property
    def loop(self) -> AbstractLoop:  # a `Loop`, as those classes declare that stand above it
        """The loop this belongs to."""
        return self._loop

    def close(self, callback: Callable[[Self], object] | None = None) -> None:
        """Stop, give resources back, and call `callback(handle)` in the closing phase.

        Closing a handle again does nothing (libuv: ``uv_close``).
        """
        if callback is not None and not callable(callback):
            raise TypeError(f"a callable object was expected by close(), got {callback!r}")
        if self._life == OPEN:
            self._close_callback = callback
            self._begin_close()

    def ref(self) -> None:
        """Let the loop stay alive for this handle while it is active (the default)."""
        if not self._referenced:
            self._referenced = True
            if self._active:
                self._loop._count_active(1)

    def unref(self) -> None:
        """Let the loop end although this handle is active."""
        if self._referenced:
            self._referenced = False
            if self._active:
                self._loop._count_active(-1)

    def has_ref(self) -> bool:
        """Return whether the loop stays alive for this handle."""
        return self._referenced

    def is_active(self) -> bool:
        """Return whether it was started, or has something under way."""
        return self._active

    def is_closing(self) -> bool:
        """Return whether `close` was called."""
        return self._life != OPEN

    def _flush_held(self) -> None:
        """Send what the loop's collector was asked to wait with, if there is any."""

    def _begin_close(self) -> None:
        """The first step of closing, once."""
        if self._life != OPEN:
            return
        self._life = CLOSING
        try:
            self._release_now()
        finally:
            Handle._deactivate(self)
            self._loop._handle_closing(self)

    def _release_now(self) -> None:
        """Call `_release`. Compiled classes may do so without a look at what a subclass has in its place."""
        self._release()

    def _release(self) -> None:
        """Give back what the handle holds, at the first step of closing."""

    def _drop_loop_reference(self) -> None:
        """Be in no cycle with the loop: for a closed handle that nobody but the loop knows."""
        self._loop = None  # type: ignore[assignment]

    def _check_open(self) -> None:
        if self._life != OPEN:
            raise OSError(errno.EINVAL, f"{type(self).__name__} handle is closed")

    def _activate(self) -> None:
        if not self._active:
            self._active = True
            if self._referenced:
                self._loop._count_active(1)

    def _deactivate(self) -> None:
        if self._active:
            self._active = False
            if self._referenced:
                self._loop._count_active(-1)

    def _finish_close(self) -> None:
        """The second step: the loop calls this in its closing phase."""
        self._life = CLOSED
        self._loop._handle_closed(self)
        callback = self._close_callback
        self._close_callback = None
        if callback is not None:
            callback(self)

    def __repr__(self) -> str:
        life = Life(self._life).name.lower()
        active = " active" if self._active else ""
        return f"<{type(self).__name__} {life}{active}>"


class Request:
    """One operation in flight; the loop stays alive until it is done (libuv: ``uv_req_t``)."""

    __slots__ = ("__weakref__", "_loop", "_pending", "data")

    def __init__(self, loop: AbstractLoop) -> None:
        loop._check_closed()
        self._loop: AbstractLoop = loop
        self.data: Any = None
        self._pending = False

    @property
    def loop(self) -> AbstractLoop:  # a `Loop`, as those classes declare that stand above it
        """The loop this belongs to."""
        return self._loop

    def is_pending(self) -> bool:
        """Return whether the operation is still in flight."""
        return self._pending

    def cancel(self) -> bool:
        """Try to cancel; whether it took. What is already under way cannot be taken back."""
        return False

    def _begin(self) -> None:
        self._pending = True
        self._loop._count_requests(1)

    def _end(self) -> None:
        if self._pending:
            self._pending = False
            self._loop._count_requests(-1)


class Completion(Runnable):
    """A call that the pending phase owes: the end of a request.

    If the loop is closed before, `abandon` is called in its place.
    """

    __slots__ = ("_abandon", "_args", "_callback")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        abandon: Callable[[], object] | None = None,
    ) -> None:
        self._callback = callback
        self._args = args
        self._abandon = abandon

    def _execute(self) -> None:
        self._callback(*self._args)

    def drop(self) -> None:
        """It will not run."""
        if self._abandon is not None:
            self._abandon()


class LateCompletion(Completion):
    """One that comes after everything else that has arrived with it, asyncs too: a signal, as in libuv."""

    __slots__ = ()
