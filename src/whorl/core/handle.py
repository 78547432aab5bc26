"""Handles and requests: the objects that keep a loop alive.

A *handle* is long-lived: it is started and stopped, and it must be closed. Closing has two steps.
`close` stops the handle and releases its resources at once. In the closing phase of that turn the
callback runs, and the loop forgets the handle. A *request* is one operation in flight.

The loop stays alive while there is an active handle that is referenced, a request in flight, or
a handle being closed.

    OPEN --close()--> CLOSING --closing phase--> CLOSED
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.core import states
from whorl.core.callback import AbstractLoop, Runnable
from whorl.core.copying import refuse_copy
from whorl.core.states import HandleState

if TYPE_CHECKING:
    from typing import Self


class Handle(Runnable):
    """A long-lived object of a loop (libuv: ``uv_handle_t``).

    `data` is the user's. A handle starts inactive and referenced.
    """

    def __init__(self, loop: AbstractLoop) -> None:
        loop._check_closed()
        self._set_up(loop)
        self._loop._handle_opened(self)

    def _set_up(self, loop: AbstractLoop) -> None:
        """Set the attributes, as `__init__` does, but do not add the handle to the loop's open ones."""
        self._loop = loop
        self.data: Any = None
        self._handle_state = states.OPEN
        self._active = False
        self._referenced = True
        self._listed = False  # whether the handle is among the loop's open ones
        self._close_callback: Callable[[Any], object] | None = None

    @property
    def loop(self) -> AbstractLoop:  # a `Loop`, as those classes declare that stand above it
        """The loop this belongs to."""
        return self._loop

    def close(self, callback: Callable[[Self], object] | None = None) -> None:
        """Stop the handle, release its resources, and call `callback(handle)` in the closing phase.

        Closing a handle again does nothing (libuv: ``uv_close``).
        """
        if callback is not None and not callable(callback):
            raise TypeError(f"a callable object was expected by close(), got {callback!r}")
        if self._handle_state == states.OPEN:
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
        """Return whether the handle was started, or has an operation under way."""
        return self._active

    def is_closing(self) -> bool:
        """Return whether `close` was called."""
        return self._handle_state != states.OPEN

    def _push(self) -> None:
        """Let the bytes leave that the kernel holds, if this is a stream of which it holds some."""

    def _learn_pieces(self) -> None:
        """Note how many pieces the last callback that wrote here has written, if this is a stream."""

    def _begin_close(self) -> None:
        """Do the first step of closing, once."""
        if self._handle_state != states.OPEN:
            return
        self._handle_state = states.CLOSING
        try:
            self._release_now()
        finally:
            Handle._deactivate(self)
            self._loop._handle_closing(self)

    def _release_now(self) -> None:
        """Call `_release`. Compiled classes may do so without a lookup of a subclass's override."""
        self._release()

    def _release(self) -> None:
        """Release the resources of the handle, at the first step of closing."""

    def _drop_loop_reference(self) -> None:
        """Drop the reference to the loop, to end the cycle: for a closed internal handle of the loop."""
        self._loop = None  # type: ignore[assignment]

    def _check_open(self) -> None:
        if self._handle_state != states.OPEN:
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
        """Do the second step of closing: the loop calls this in its closing phase."""
        self._handle_state = states.CLOSED
        self._loop._handle_closed(self)
        callback = self._close_callback
        self._close_callback = None
        if callback is not None:
            callback(self)

    def __repr__(self) -> str:
        state = HandleState(self._handle_state).name.lower()
        active = " active" if self._active else ""
        return f"<{type(self).__name__} {state}{active}>"


class Request:
    """An operation in flight; the loop stays alive until it is done (libuv: ``uv_req_t``)."""

    __reduce__ = refuse_copy

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
        """Try to cancel; return whether that worked. An operation that has begun cannot be undone."""
        return False

    def _begin(self) -> None:
        self._pending = True
        self._loop._count_requests(1)

    def _end(self) -> None:
        if self._pending:
            self._pending = False
            self._loop._count_requests(-1)


class Completion(Runnable):
    """The call at the end of a request, queued for the pending phase.

    If the loop is closed before, `drop` calls `abandon` instead.
    """

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
        """Call `abandon`, since this completion will not run."""
        if self._abandon is not None:
            self._abandon()


class LateCompletion(Completion):
    """A completion that runs after all entries posted with it, also after Asyncs: a signal, as in libuv."""
