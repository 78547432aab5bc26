"""Timers: calls with a deadline.

Order is total and stable: by deadline in integer nanoseconds, then by the caller's float, then by the
order of scheduling. Two floats may fall into one nanosecond. `core/timers/heap` keeps this order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import Context
from typing import Any

from whorl.core import limits
from whorl.core.callback import AbstractLoop, Callback

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

NEVER_FLOAT = limits.NEVER_NS / 1e9
NOT_A_TIME = -limits.NEVER_NS - 1  # the deadline that NaN makes


def deadline_of(when: float) -> int:
    """Return the nanosecond at which a time in seconds has been reached.

    Infinity, and any time too far for 64 bits, never comes. NaN is due at once, as in asyncio,
    and before everything else, so that the order stays total.
    """
    return deadline_at(seconds_of(when))


def seconds_of(when: float) -> float:
    """Return a time as a float. Unlike `float`, this takes no text."""
    return when if type(when) is float else math.ldexp(when, 0)


def deadline_at(seconds: float) -> int:
    """Return what `deadline_of` returns, for a float."""
    if seconds >= NEVER_FLOAT:
        return limits.NEVER_NS
    if seconds > -NEVER_FLOAT:
        return ceil_ns(seconds)
    return -limits.NEVER_NS if seconds == seconds else NOT_A_TIME


class TimedCallback(Callback):
    """A callback with a deadline; `when` gives the time the caller asked for, in seconds.

    The timers of handles have a deadline only: `_when` is None. The loop does not stay alive for them.
    """

    def __init__(
        self,
        loop: AbstractLoop,
        deadline_ns: int,
        when: float | None,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None = None,
    ) -> None:
        super().__init__(loop, callback, args, context)
        self._deadline_ns = deadline_ns
        self._keeps_alive = when is not None
        self._given_when: Any = when  # the caller's argument; None: none, or just the float `_seconds`
        # The order of timers that are due in the same nanosecond.
        self._seconds = deadline_ns / 1e9 if when is None else ordered(seconds_of(when))
        self._number = 0
        self._scheduled = False

    @property
    def _when(self) -> Any:
        """The time that the caller asked for, by asyncio's private name; None for the timers of handles."""
        return self._seconds if self._given_when is None and self._keeps_alive else self._given_when

    def when(self) -> float:
        """Return the deadline, in seconds of the loop's clock (asyncio: ``TimerHandle.when``)."""
        if self._given_when is not None:
            given: float = self._given_when
            return given
        return self._seconds if self._keeps_alive else self._deadline_ns / 1e9

    def cancel(self) -> None:
        """Make sure that the function is not called."""
        if not self._cancelled:
            self._mark_cancelled()
            self._unschedule()

    def _unschedule(self) -> None:
        if self._scheduled:
            self._scheduled = False
            self._loop._timer_cancelled(self)

    def _fell_due(self) -> None:
        """Note that the timer has left the heap, and waits for its call."""
        self._scheduled = False

    def __hash__(self) -> int:
        return hash(self.when())

    def __lt__(self, other: object) -> bool:
        if isinstance(other, TimedCallback):
            return self.when() < other.when()
        return NotImplemented

    def __le__(self, other: object) -> bool:
        if isinstance(other, TimedCallback):
            return self.when() <= other.when()
        return NotImplemented

    def __gt__(self, other: object) -> bool:
        if isinstance(other, TimedCallback):
            return self.when() > other.when()
        return NotImplemented

    def __ge__(self, other: object) -> bool:
        if isinstance(other, TimedCallback):
            return self.when() >= other.when()
        return NotImplemented

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TimedCallback):
            return (
                self.when() == other.when()
                and self._callback == other._callback
                and self._args == other._args
                and self._cancelled == other._cancelled
            )
        return NotImplemented


def new_timer(
    loop: AbstractLoop,
    when: float,
    callback: Callable[..., object],
    args: tuple[Any, ...],
    context: Context | None,
) -> TimedCallback:
    """Return a `TimedCallback` for a time in seconds, made without the cost of calling its class."""
    seconds = seconds_of(when)  # asked for once: it may run a `__float__` of the program
    timer = new_timer_at(loop, seconds, callback, args, context)
    timer._given_when = when
    return timer


def new_timer_after(
    loop: AbstractLoop,
    now_ns: int,
    delay: float,
    callback: Callable[..., object],
    args: tuple[Any, ...],
    context: Context | None,
) -> TimedCallback:
    """Return a `TimedCallback` for `delay` seconds after a time in nanoseconds."""
    now = now_ns / 1e9
    if type(delay) is float or type(delay) is int:
        seconds = delay
        return new_timer_at(loop, now + seconds, callback, args, context)
    return new_timer(loop, now + delay, callback, args, context)


def new_timer_at(
    loop: AbstractLoop,
    seconds: float,
    callback: Callable[..., object],
    args: tuple[Any, ...],
    context: Context | None,
) -> TimedCallback:
    """Return a `TimedCallback` for a time that is a float."""
    timer = TimedCallback.__new__(TimedCallback)
    timer._loop = loop
    timer._callback = callback
    timer._args = args
    timer._snapshot = snapshot_context() if context is None else context
    timer._cancelled = False
    timer._source_traceback = None
    timer._repr = None
    timer._number = 0
    timer._scheduled = False
    timer._keeps_alive = True
    timer._given_when = None if seconds == seconds else seconds
    timer._seconds = ordered(seconds)
    timer._deadline_ns = deadline_at(seconds)
    return timer


if not cython.compiled:
    from whorl.core.callback import snapshot_context

    def ceil_ns(seconds: float) -> int:
        """Return the first whole nanosecond that is not before a time in seconds."""
        return math.ceil(seconds * 1e9)

    def ordered(seconds: float) -> float:
        """Return the order of timers that are due in the same nanosecond; 0 for NaN, which has no order."""
        return seconds if seconds == seconds else 0.0
