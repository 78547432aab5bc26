"""Idle, Prepare and Check: handles that run once in every turn of the loop, each in its own phase.

Idle handles run first; while one is started, the loop does not sleep. Prepare handles run right
before the poll, Check handles right after it. Of one kind, the handle that was started last runs
first, as in libuv. A handle that is started while its phase runs waits for the next turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.core.callback import call_in_context, current_context
from whorl.core.handle import Handle

if TYPE_CHECKING:
    from typing import Self

    from whorl.core.loop.loop import Loop


class LoopWatcher(Handle):
    """The base of Idle, Prepare and Check, which differ in the phase."""

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self._callback: Any = None
        self._args: tuple[Any, ...] = ()
        self._context: Any = None
        self._started_in = 0  # the pass over a phase before or during which it was started

    def _phase(self) -> list[Any]:
        """Return the loop's list of the started handles of this kind, in the order in which they run."""
        raise NotImplementedError

    def start(self, callback: Callable[[Self], object]) -> None:
        """Call `callback(handle)` in every turn. Does nothing if the handle is started already."""
        self._check_open()
        if not callable(callback):
            raise TypeError(f"a callable object was expected by start(), got {callback!r}")
        if self._active:
            return
        self._callback = callback
        self._args = (self,)
        self._context = current_context()
        loop: Loop = self._loop  # type: ignore[assignment]  # each loop is one
        self._started_in = loop._passes
        self._phase().insert(0, self)
        self._activate()

    def stop(self) -> None:
        """Stop calling back. Does nothing if the handle is not started."""
        if self._active:
            self._phase().remove(self)
            self._deactivate()
            self._callback = None
            self._args = ()
            self._context = None

    def _execute(self) -> None:
        call_in_context(self._context, self._callback, self._args)

    def _release(self) -> None:
        self.stop()


class Idle(LoopWatcher):
    """A handle that runs in every turn, and keeps the loop from sleeping (libuv: ``uv_idle_t``)."""

    def _phase(self) -> list[Any]:
        loop: Loop = self._loop  # type: ignore[assignment]  # each loop is one
        return loop._idle_handles


class Prepare(LoopWatcher):
    """A handle that runs in every turn right before the loop polls (libuv: ``uv_prepare_t``)."""

    def _phase(self) -> list[Any]:
        loop: Loop = self._loop  # type: ignore[assignment]  # each loop is one
        return loop._prepare_handles


class Check(LoopWatcher):
    """A handle that runs in every turn right after the loop polled (libuv: ``uv_check_t``)."""

    def _phase(self) -> list[Any]:
        loop: Loop = self._loop  # type: ignore[assignment]  # each loop is one
        return loop._check_handles
