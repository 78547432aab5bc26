"""Timers: calls with a deadline, and the heap that orders them.

Order is total and stable: by deadline in integer nanoseconds, then by the float the caller gave
(two floats may fall into one nanosecond), then by the order of scheduling. Cancelling only marks
a timer; the heap is swept when cancelled timers are more than half of it, so that cancelling
costs O(1) however many there are.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from contextvars import Context
from typing import Any

from whorl.core.callback import Callback, Owner
from whorl.core.limits import NEVER_NS, SWEEP_FRACTION, SWEEP_MIN_CANCELLED

try:
    import cython
except ImportError:
    from whorl.core import uncompiled as cython

NEVER_FLOAT = NEVER_NS / 1e9
NOT_A_TIME = -NEVER_NS - 1  # the deadline that NaN makes


def deadline_of(when: float) -> int:
    """The nanosecond at which a time in seconds has been reached.

    Infinity, and whatever is too far for 64 bits, never comes; NaN is due at once, as in asyncio,
    and before everything else, so that the order stays total.
    """
    seconds = when if type(when) is float else math.ldexp(when, 0)  # unlike float(), this takes no text
    if seconds >= NEVER_FLOAT:
        return NEVER_NS
    if seconds > -NEVER_FLOAT:
        return ceil_ns(seconds) if cython.compiled else math.ceil(seconds * 1e9)
    return -NEVER_NS if seconds == seconds else NOT_A_TIME


class TimedCallback(Callback):
    """A callback with a deadline; `when` gives the time the caller asked for, in seconds."""

    __slots__ = ("_deadline_ns", "_keeps_alive", "_number", "_scheduled", "_seconds", "_when")

    def __init__(
        self,
        loop: Owner,
        deadline_ns: int,
        when: float | None,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None = None,
    ) -> None:
        super().__init__(loop, callback, args, context)
        self._deadline_ns = deadline_ns
        self._when = when
        self._seconds = seconds_of(deadline_ns, when)  # asked for once: it may be anybody's `__float__`
        self._number = 0
        self._scheduled = False
        self._keeps_alive = True  # whether the loop stays alive for it; a handle's timer does not count

    def when(self) -> float:
        """The deadline, in seconds of the loop's clock (asyncio: ``TimerHandle.when``)."""
        when: float = self._deadline_ns / 1e9 if self._when is None else self._when
        return when

    def cancel(self) -> None:
        """Make sure that the function is not called."""
        if not self._cancelled:
            super().cancel()
            self._unschedule()

    def _unschedule(self) -> None:
        if self._scheduled:
            self._scheduled = False
            self._loop._timer_cancelled(self)

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


class TimerHeap:
    """Timers in the order in which they fall due."""

    __slots__ = ("_cancelled", "_heap", "_keepers", "_numbers")

    def __init__(self) -> None:
        self._heap: list[Any] = []
        self._cancelled = 0  # how many entries of the heap are cancelled
        self._keepers = 0  # how many timers keep the loop alive
        self._numbers = 0  # the number of the timer scheduled last

    def __len__(self) -> int:
        return len(self._heap)

    def timers(self) -> list[TimedCallback]:
        """All entries, in no particular order."""
        return list(self._heap)

    def push(self, timer: TimedCallback) -> None:
        """Schedule a timer."""
        self._numbers += 1
        timer._number = self._numbers
        timer._scheduled = True
        self._keepers += timer._keeps_alive
        heap = self._heap
        position = len(heap)
        heap.append(timer)
        while position > 0:
            parent = (position - 1) >> 1
            above = heap[parent]
            if not before(timer, above):
                break
            heap[position] = above
            position = parent
        heap[position] = timer

    def _top(self) -> TimedCallback:
        top: TimedCallback = self._heap[0]
        return top

    def _pop(self) -> TimedCallback:
        heap = self._heap
        top: TimedCallback = heap[0]
        last = heap.pop()
        if heap:
            heap[0] = last
            self._sift_down(0)
        return top

    def _sift_down(self, position: int) -> None:
        """Let the entry at `position` sink to where it belongs."""
        heap = self._heap
        size = len(heap)
        timer: TimedCallback = heap[position]
        child = 2 * position + 1
        while child < size:
            below: TimedCallback = heap[child]
            if child + 1 < size:
                right: TimedCallback = heap[child + 1]
                if before(right, below):
                    child += 1
                    below = right
            if not before(below, timer):
                break
            heap[position] = below
            position = child
            child = 2 * position + 1
        heap[position] = timer

    def next_deadline(self) -> int:
        """When the first timer falls due, in nanoseconds; `NEVER_NS` if there is none."""
        self._drop_cancelled_top()
        if not self._heap:
            return NEVER_NS
        return self._top()._deadline_ns

    def pop_due(self, now_ns: int) -> TimedCallback | None:
        """Take the first timer if its deadline has been reached."""
        self._drop_cancelled_top()
        if not self._heap:
            return None
        top = self._top()
        if top._deadline_ns > now_ns or top._deadline_ns == NEVER_NS:
            return None
        top._scheduled = False
        self._keepers -= top._keeps_alive
        return self._pop()

    def _drop_cancelled_top(self) -> None:
        while self._cancelled and self._heap and self._top()._cancelled:
            self._cancelled -= 1
            self._pop()

    def note_cancelled(self, timer: TimedCallback) -> None:
        """Count a cancelled entry; sweep when they are too many."""
        self._cancelled += 1
        self._keepers -= timer._keeps_alive
        if self._cancelled > SWEEP_MIN_CANCELLED and self._cancelled * SWEEP_FRACTION > len(self._heap):
            self._sweep()

    def _sweep(self) -> None:
        kept = []
        for entry in self._heap:
            timer: TimedCallback = entry
            if not timer._cancelled:
                kept.append(timer)
        self._heap = kept
        self._cancelled = 0
        for position in range(len(kept) // 2 - 1, -1, -1):
            self._sift_down(position)

    def clear(self) -> None:
        """Forget all timers."""
        self._heap = []
        self._cancelled = 0
        self._keepers = 0


if not cython.compiled:
    from whorl.core.callback import copy_context

    # Uncompiled, the C code of `heapq` over tuples is several times faster than the loops above.

    def ceil_ns(seconds: float) -> int:
        """The first whole nanosecond that is not before a time in seconds."""
        return math.ceil(seconds * 1e9)

    def seconds_of(deadline_ns: int, when: float | None) -> float:
        """What orders timers that are due in the same nanosecond."""
        if when is None:
            return deadline_ns / 1e9
        return 0.0 if deadline_ns == NOT_A_TIME else math.ldexp(when, 0)

    def before(a: TimedCallback, b: TimedCallback) -> bool:
        """Whether `a` falls due before `b`."""
        return _entry(a) < _entry(b)

    def _entry(timer: TimedCallback) -> tuple[int, float, int, TimedCallback]:
        """The timer behind what orders it; the number settles every tie."""
        return timer._deadline_ns, timer._seconds, timer._number, timer

    class HeapqTimerHeap(TimerHeap):
        """The same heap, kept by `heapq`."""

        __slots__ = ()

        def push(self, timer: TimedCallback) -> None:
            self._numbers += 1
            timer._number = self._numbers
            timer._scheduled = True
            self._keepers += timer._keeps_alive
            heapq.heappush(self._heap, _entry(timer))

        def timers(self) -> list[TimedCallback]:
            return [entry[-1] for entry in self._heap]

        def pop_due(self, now_ns: int) -> TimedCallback | None:
            heap = self._heap
            while heap:
                deadline, _, _, timer = heap[0]
                if timer._cancelled:
                    self._cancelled -= 1
                elif deadline > now_ns or deadline == NEVER_NS:
                    break
                else:
                    timer._scheduled = False
                    self._keepers -= timer._keeps_alive
                    heapq.heappop(heap)
                    return timer  # type: ignore[no-any-return]
                heapq.heappop(heap)
            return None

        def _top(self) -> TimedCallback:
            top: TimedCallback = self._heap[0][-1]
            return top

        def _pop(self) -> TimedCallback:
            top: TimedCallback = heapq.heappop(self._heap)[-1]
            return top

        def _sweep(self) -> None:
            self._heap = [entry for entry in self._heap if not entry[-1]._cancelled]
            heapq.heapify(self._heap)
            self._cancelled = 0


def new_heap() -> TimerHeap:
    """An empty heap of the kind that is fastest in this build."""
    return TimerHeap() if cython.compiled else HeapqTimerHeap()


def new_timer(
    loop: Owner,
    deadline_ns: int,
    when: float | None,
    callback: Callable[..., object],
    args: tuple[Any, ...],
    context: Context | None,
) -> TimedCallback:
    """A `TimedCallback`, made without the cost of a call by name."""
    timer = TimedCallback.__new__(TimedCallback)
    timer._loop = loop
    timer._callback = callback
    timer._args = args
    timer._context = copy_context() if context is None else context
    timer._cancelled = False
    timer._source_traceback = None
    timer._repr = None
    timer._deadline_ns = deadline_ns
    timer._when = when
    timer._seconds = seconds_of(deadline_ns, when)
    timer._number = 0
    timer._scheduled = False
    timer._keeps_alive = True
    return timer
