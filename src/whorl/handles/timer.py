"""Timer: calls a function after a while, once or again and again."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.core.callback import current_context
from whorl.core.handle import Handle
from whorl.core.limits import NEVER_NS
from whorl.core.timer import TimedCallback, new_handle_timer

if TYPE_CHECKING:
    from typing import Self

    from whorl.core.loop import Loop


class Timer(Handle):
    """A timer (libuv: ``uv_timer_t``).

    Times are in nanoseconds and relative to `Loop.now`: to the time at which the turn's events
    were collected, however long the turn has taken since then. Timers that fall due at the same
    nanosecond run in the order in which they were started.
    """

    __slots__ = ("_callback", "_context", "_entry", "_repeat_ns")

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self._callback: Callable[[Any], object] | None = None
        self._context: Any = None
        self._entry: TimedCallback | None = None  # its place among the loop's timers, while it is active
        self._repeat_ns = 0

    def start(self, callback: Callable[[Self], object], timeout_ns: int, repeat_ns: int = 0) -> None:
        """Call `callback(timer)` after `timeout_ns`, and every `repeat_ns` after that unless it is 0.

        A timer that is started already starts anew.
        """
        self._check_open()
        if not callable(callback):
            raise TypeError(f"a callable object was expected by start(), got {callback!r}")
        duration(timeout_ns)
        self._repeat_ns = duration(repeat_ns)
        self._callback = callback
        self._context = current_context()
        self._arm(timeout_ns)

    def stop(self) -> None:
        """Call no more, even if the timer is due already. Does nothing if it is not started."""
        if self._entry is not None:
            self._entry.cancel()
            self._entry = None
        self._deactivate()

    def again(self) -> None:
        """Start a repeating timer anew with its repeat time as timeout; else do nothing.

        Raises OSError (EINVAL) if the timer has never been started.
        """
        self._check_open()
        if self._callback is None:
            raise OSError(errno.EINVAL, "the timer has never been started")
        if self._repeat_ns:
            self._arm(self._repeat_ns)

    @property
    def repeat_ns(self) -> int:
        """The time between calls, 0: it does not repeat. A change counts when it is armed again."""
        return self._repeat_ns

    @repeat_ns.setter
    def repeat_ns(self, value: int) -> None:
        self._repeat_ns = duration(value)

    def due_in_ns(self) -> int:
        """How long until it falls due; 0 if it is due, or not started."""
        if self._entry is None:
            return 0
        return max(0, self._entry._deadline_ns - self.loop.now())

    def _arm(self, timeout_ns: int) -> None:
        """Take a place among the loop's timers."""
        self.stop()
        loop: Any = self._loop
        deadline = min(loop._now_ns + timeout_ns, NEVER_NS)
        entry = new_handle_timer(loop, deadline, self._fall_due, (), self._context)
        self._entry = entry
        loop._schedule(entry)
        self._activate()

    def _fall_due(self) -> None:
        self._entry = None
        self._deactivate()
        if self._repeat_ns:
            self._arm(self._repeat_ns)
        callback = self._callback
        if callback is not None:
            callback(self)

    def _release(self) -> None:
        self.stop()
        self._callback = None
        self._context = None


def duration(value: int) -> int:
    """The number of nanoseconds, if it is one."""
    if not isinstance(value, int):
        raise TypeError(f"a time in nanoseconds is an int, not {type(value).__name__}")
    if value < 0:
        raise ValueError(f"a time must not be negative: {value}")
    return value
