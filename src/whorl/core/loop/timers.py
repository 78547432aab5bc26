"""What time it is for a loop, and which of its timers are due."""

from __future__ import annotations

from typing import Any

from whorl.core.kernel.kernel import Kernel
from whorl.core.limits import LONGEST_POLL_NS, NEVER_NS
from whorl.core.loop.handles import LoopHandles
from whorl.core.process.host import Host
from whorl.core.timers.heap import TimerHeap
from whorl.core.timers.timed_callback import TimedCallback, deadline_of


class LoopTimers(LoopHandles):
    """The part of a loop that keeps time."""

    __slots__ = ("_clock_function", "_follows_patch", "_now_ns", "_time_replaced", "_timer_queue")

    def _set_up(self, kernel: Kernel | None, host: Host | None) -> None:
        LoopHandles._set_up(self, kernel, host)
        self._clock_function: Any = None  # what asyncio's face has for `time`
        self._timer_queue = TimerHeap()
        self._now_ns = self._kernel.now()
        self._time_replaced = False  # whether `time` or `call_at` is not the machine's
        self._follows_patch = False  # whether it has noticed that `time.monotonic` is patched

    def time(self) -> float:
        """The monotonic clock, in seconds, read afresh."""
        return self._kernel.now() / 1e9

    def now(self) -> int:
        """The time at which this turn's events were collected, in nanoseconds (``uv_now``)."""
        return self._now_ns

    def update_time(self) -> None:
        """Read the clock for `now` (``uv_update_time``)."""
        self._now_ns = self._clock()

    def _clock(self) -> int:
        return deadline_of(self.time()) if self._time_replaced else self._kernel.now()

    def _schedule(self, timer: TimedCallback) -> None:
        self._timer_queue.push(timer)
        if self._may_sleep:
            self._end_sleep()

    def _timer_cancelled(self, timer: Any) -> None:
        self._timer_queue.note_cancelled(timer)

    def _collect_timers(self, into: list[Any]) -> None:
        """Append the timers that are due by now."""
        collected = len(into)
        limit = self._now_ns
        if self._time_replaced and limit < NEVER_NS:
            limit += 1  # By somebody else's clock, floats that differ in their last digit are the same time.
        self._timer_queue.take_due(limit, into)
        if self._probe is not None:
            for timer in into[collected:]:
                self._notify_probe("timer_due", timer, self._now_ns - max(0, timer._deadline_ns))

    def _until_next_timer(self, now_ns: int) -> int:
        """Nanoseconds until the first timer falls due, -1 if there is none."""
        deadline = self._timer_queue.next_deadline()
        if deadline == NEVER_NS:
            return -1
        if deadline <= now_ns:
            return 0
        return min(deadline - now_ns, LONGEST_POLL_NS)
