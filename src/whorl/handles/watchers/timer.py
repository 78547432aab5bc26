"""Timer: calls a function after a while, once or again and again."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.core import limits
from whorl.core.callback import current_context
from whorl.core.handle import Handle
from whorl.core.timers.timed_callback import TimedCallback

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from typing import Self

    from whorl.core.loop.loop import Loop


class TimerEntry(TimedCallback):
    """A timer's entry in the loop's heap; the timer uses it again after each call."""

    def __init__(self, timer: Timer) -> None:
        super().__init__(timer._loop, 0, None, list, ())
        self._timer: Timer | None = timer  # None: the entry is given up

    def _fell_due(self) -> None:
        TimedCallback._fell_due(self)
        if self._timer is not None:
            self._timer._deactivate()  # as in libuv, a timer that waits for its call is not active

    def _execute(self) -> None:
        timer = self._timer
        if timer is not None:
            timer._fall_due()

    def _give_up(self) -> None:
        """Cancel the entry; it is not used again."""
        self._cancelled = True
        self._timer = None
        self._callback = None
        self._snapshot = None
        self._unschedule()


class Timer(Handle):
    """A timer (libuv: ``uv_timer_t``).

    Times are in nanoseconds and relative to `Loop.now`, the time at which the turn's events were
    collected, however long the turn has taken since then. Timers that fall due at the same
    nanosecond run in the order in which they were started.
    """

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self._callback: Callable[[Any], object] | None = None
        self._context: Any = None
        self._entry: TimerEntry | None = None  # the timer's entry in the loop's heap
        self._is_started = False  # whether a call will come: true from the start until the call
        self._repeat_ns = 0

    def start(self, callback: Callable[[Self], object], timeout_ns: int, repeat_ns: int = 0) -> None:
        """Call `callback(timer)` after `timeout_ns`, and every `repeat_ns` after that unless it is 0.

        A timer that is started already starts anew.
        """
        self._check_open()
        if not callable(callback):
            raise TypeError(f"a callable object was expected by start(), got {callback!r}")
        timeout = duration(timeout_ns)
        self._repeat_ns = duration(repeat_ns)
        self._callback = callback
        self._context = current_context()
        self._arm(timeout)

    def stop(self) -> None:
        """Stop the timer, even if it is due already. Does nothing if it is not started."""
        if self._is_started:
            self._is_started = False
            entry = self._entry
            self._entry = None
            if entry is not None:
                entry._give_up()
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
        """The time between calls; 0: no repeats. A change counts when the timer is armed again."""
        return self._repeat_ns

    @repeat_ns.setter
    def repeat_ns(self, value: int) -> None:
        self._repeat_ns = duration(value)

    def due_in_ns(self) -> int:
        """Return the time until the timer falls due; 0 if it is due, or not started."""
        entry = self._entry
        if entry is None or not self._is_started:
            return 0
        return max(0, entry._deadline_ns - self.loop.now())

    def _arm(self, timeout_ns: int) -> None:
        """Schedule the timer's entry."""
        self.stop()
        loop: Any = self._loop
        entry = self._entry
        if entry is None:
            self._entry = entry = new_entry(self)
        now_ns: int = loop._now_ns
        deadline = (
            now_ns + timeout_ns if now_ns <= 0 or timeout_ns < limits.NEVER_NS - now_ns else limits.NEVER_NS
        )
        entry._deadline_ns = deadline
        entry._seconds = deadline / 1e9
        entry._callback = self._callback
        entry._snapshot = self._context
        loop._schedule(entry)
        self._is_started = True
        self._activate()

    def _fall_due(self) -> None:
        self._is_started = False
        if self._active:
            self._deactivate()  # an interrupt came before `_fell_due`
        if self._repeat_ns:
            self._arm(self._repeat_ns)
        callback = self._callback
        if callback is not None:
            call_with_one(self._context, callback, self)

    def _release(self) -> None:
        self.stop()
        self._entry = None
        self._callback = None
        self._context = None


def new_entry(timer: Timer) -> TimerEntry:
    """Return an entry for a timer, made without the cost of calling its class."""
    entry = TimerEntry.__new__(TimerEntry)
    entry._loop = timer._loop
    entry._args = ()
    entry._cancelled = False
    entry._source_traceback = None
    entry._repr = None
    entry._given_when = None
    entry._keeps_alive = False
    entry._scheduled = False
    entry._timer = timer
    return entry


def duration(value: int) -> int:
    """Return a number of nanoseconds, at most `NEVER_NS`; raise an error if it is none or negative."""
    if not isinstance(value, int):
        raise TypeError(f"a time in nanoseconds is an int, not {type(value).__name__}")
    nanoseconds = within_64_bits(value)
    if nanoseconds < 0:
        raise ValueError(f"a time must not be negative: {value}")
    return nanoseconds


if not cython.compiled:
    from whorl.core.callback import call_with_one

    def within_64_bits(value: int) -> int:
        """Return the number, or the nearest that 64 bits hold."""
        return max(-limits.NEVER_NS, min(value, limits.NEVER_NS))
