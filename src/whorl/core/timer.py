"""Timers: calls with a deadline, and the heap that orders them.

Order is total and stable: by deadline in integer nanoseconds, then by the float the caller gave
(two floats may fall into one nanosecond), then by the order of scheduling. Cancelling only marks
a timer; the heap is swept when cancelled timers are more than half of it, so that cancelling
costs O(1) however many there are.

Compiled, the heap holds the timers themselves. Uncompiled (below), it holds numbers only, which
`heapq` compares in C and the collector need not look at.
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
    return deadline_at(seconds_of(when))


def seconds_of(when: float) -> float:
    """A time as a float. Unlike `float`, this takes no text."""
    return when if type(when) is float else math.ldexp(when, 0)


def deadline_at(seconds: float) -> int:
    """`deadline_of` for floats."""
    if seconds >= NEVER_FLOAT:
        return NEVER_NS
    if seconds > -NEVER_FLOAT:
        return ceil_ns(seconds)
    return -NEVER_NS if seconds == seconds else NOT_A_TIME


class TimedCallback(Callback):
    """A callback with a deadline; `when` gives the time the caller asked for, in seconds.

    The timers of handles have a deadline only: `_when` is None. The loop does not stay alive for them.
    """

    __slots__ = ("_deadline_ns", "_number", "_scheduled", "_seconds", "_when")

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
        # What orders those that are due in the same nanosecond.
        self._seconds = deadline_ns / 1e9 if when is None else ordered(seconds_of(when))
        self._number = 0
        self._scheduled = False

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

    __slots__ = ("_cancelled", "_entries", "_keepers", "_numbers")

    def __init__(self) -> None:
        self._entries: list[Any] = []
        self._cancelled = 0  # how many entries of the heap are cancelled
        self._keepers = 0  # how many timers keep the loop alive
        self._numbers = 0  # the number of the timer scheduled last

    def __len__(self) -> int:
        return len(self._entries)

    def timers(self) -> list[TimedCallback]:
        """All entries, in no particular order."""
        return list(self._entries)

    def push(self, timer: TimedCallback) -> None:
        """Schedule a timer."""
        self._numbers += 1
        timer._number = self._numbers
        timer._scheduled = True
        self._keepers += timer._when is not None
        heap = self._entries
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
        top: TimedCallback = self._entries[0]
        return top

    def _pop(self) -> TimedCallback:
        heap = self._entries
        top: TimedCallback = heap[0]
        last = heap.pop()
        if heap:
            heap[0] = last
            self._sift_down(0)
        return top

    def _sift_down(self, position: int) -> None:
        """Let the entry at `position` sink to where it belongs."""
        heap = self._entries
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
        if not self._entries:
            return NEVER_NS
        return self._top()._deadline_ns

    def take_due(self, now_ns: int, into: list[Any]) -> None:
        """Append the timers whose deadline has been reached."""
        self._drop_cancelled_top()
        while self._entries:
            top = self._top()
            if top._deadline_ns > now_ns or top._deadline_ns == NEVER_NS:
                break
            top._scheduled = False
            self._keepers -= top._when is not None
            into.append(self._pop())
            self._drop_cancelled_top()

    def _drop_cancelled_top(self) -> None:
        while self._cancelled and self._entries and self._top()._cancelled:
            self._cancelled -= 1
            self._pop()

    def note_cancelled(self, timer: TimedCallback) -> None:
        """Count a cancelled entry; sweep when they are too many."""
        self._cancelled += 1
        self._keepers -= timer._when is not None
        if self._cancelled > SWEEP_MIN_CANCELLED and self._cancelled * SWEEP_FRACTION > len(self._entries):
            self._sweep()

    def _sweep(self) -> None:
        kept = []
        for entry in self._entries:
            timer: TimedCallback = entry
            if not timer._cancelled:
                kept.append(timer)
        self._entries = kept
        self._cancelled = 0
        for position in range(len(kept) // 2 - 1, -1, -1):
            self._sift_down(position)

    def clear(self) -> None:
        """Forget all timers."""
        self._entries = []
        self._cancelled = 0
        self._keepers = 0


def new_heap() -> TimerHeap:
    """An empty heap of the kind that is fastest in this build."""
    return TimerHeap()


def new_timer(
    loop: Owner,
    when: float,
    callback: Callable[..., object],
    args: tuple[Any, ...],
    context: Context | None,
) -> TimedCallback:
    """A `TimedCallback` for a time in seconds, made without the cost of a call by name."""
    timer = blank_timer(loop, callback, args, context)
    seconds = seconds_of(when)  # asked for once: it may be anybody's `__float__`
    timer._when = when
    timer._seconds = ordered(seconds)
    timer._deadline_ns = deadline_at(seconds)
    return timer


def new_handle_timer(
    loop: Owner,
    deadline_ns: int,
    callback: Callable[..., object],
    args: tuple[Any, ...],
    context: Context | None,
) -> TimedCallback:
    """A `TimedCallback` of a handle's, for which the loop does not stay alive."""
    timer = blank_timer(loop, callback, args, context)
    timer._when = None
    timer._seconds = deadline_ns / 1e9
    timer._deadline_ns = deadline_ns
    return timer


def blank_timer(
    loop: Owner, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
) -> TimedCallback:
    """A `TimedCallback` without a time."""
    timer = TimedCallback.__new__(TimedCallback)
    timer._loop = loop
    timer._callback = callback
    timer._args = args
    timer._context = copy_context() if context is None else context
    timer._cancelled = False
    timer._source_traceback = None
    timer._repr = None
    timer._number = 0
    timer._scheduled = False
    return timer


if not cython.compiled:
    from whorl.core.callback import copy_context

    EXACT = 1 << 53  # floats tell integers up to here apart
    BULK_MIN = 64  # From so many due timers on, and when they are more than ...
    BULK_FRACTION = 8  # ... one in so many of all, the others are picked out at once.

    def ceil_ns(seconds: float) -> int:
        """The first whole nanosecond that is not before a time in seconds."""
        return math.ceil(seconds * 1e9)

    def ordered(seconds: float) -> float:
        """What orders timers that are due in the same nanosecond: NaN is in order with nothing."""
        return seconds if seconds == seconds else 0.0

    def before(a: TimedCallback, b: TimedCallback) -> bool:
        """Whether `a` falls due before `b`."""
        return (a._deadline_ns, a._seconds, a._number) < (b._deadline_ns, b._seconds, b._number)

    class KeyedTimedCallback(TimedCallback):
        """A timer that knows a key, by which the heap finds it, and computes its deadline when asked.

        The key is the time in nanoseconds, a float: rounded up it is the deadline. A handle's timer
        has its deadline for a key.
        """

        __slots__ = ("_key",)

        def __init__(
            self,
            loop: Owner,
            when: float,
            callback: Callable[..., object],
            args: tuple[Any, ...],
            context: Context | None,
        ) -> None:
            self._loop = loop
            self._callback = callback
            self._args = args
            self._context = copy_context() if context is None else context
            self._cancelled = False
            self._source_traceback = None
            self._repr = None
            self._when = when
            self._seconds = seconds = when if type(when) is float else seconds_of(when)
            self._key: float = seconds * 1e9 if seconds == seconds else -math.inf

        @property
        def _deadline_ns(self) -> int:  # type: ignore[override]
            return deadline_of_key(self._key)

        @property
        def _scheduled(self) -> bool:  # type: ignore[override]
            loop: Any = self._loop
            return loop._timers.holds(self)  # type: ignore[no-any-return]

        def cancel(self) -> None:
            """Make sure that the function is not called."""
            if not self._cancelled:
                loop: Any = self._loop
                self._cancelled = True
                if loop._debug:
                    self._repr = repr(self)
                self._callback = None
                self._args = None
                loop._timers.note_cancelled(self)

    def deadline_of_key(key: float) -> int:
        """The nanosecond at which a timer with this key is due."""
        if type(key) is int or -NEVER_NS < key < NEVER_NS:
            return math.ceil(key)
        return NEVER_NS if key > 0 else -NEVER_NS

    def order_among_equals(timer: KeyedTimedCallback) -> tuple[bool, float]:
        """What orders timers with the same key: NaN comes first; two times may make one key."""
        seconds = timer._seconds
        return seconds == seconds, seconds

    class HeapqTimerHeap(TimerHeap):
        """Keys in a heap, and the timers by their keys.

        A new key joins the heap when somebody looks at it, once a turn. A cancelled timer goes at
        once; its key stays until it comes up, or until a sweep. Timers with the same key share a
        place: a dictionary, in which they keep their order.
        """

        __slots__ = ("_fresh", "_keys", "_others", "_surplus")

        def __init__(self) -> None:
            self._entries: dict[float, Any] = {}  # type: ignore[assignment]
            self._keys: list[float] = []  # the heap
            self._fresh: list[float] = []  # keys that are not in it yet
            self._surplus = 0  # how many more timers than keys there are
            self._others = 0  # how many timers do not keep the loop alive

        def __len__(self) -> int:
            return len(self._entries) + self._surplus

        @property
        def _keepers(self) -> int:  # type: ignore[override]
            return len(self._entries) + self._surplus - self._others

        def timers(self) -> list[TimedCallback]:
            found: list[TimedCallback] = []
            for entry in self._entries.values():
                found += entry.values() if type(entry) is dict else [entry]
            return found

        def holds(self, timer: KeyedTimedCallback) -> bool:
            """Whether a timer is scheduled."""
            entry = self._entries.get(timer._key)
            return entry is timer or (type(entry) is dict and id(timer) in entry)

        def push(self, timer: Any) -> None:
            key = timer._key
            entry = self._entries.setdefault(key, timer)
            if entry is timer:
                self._fresh.append(key)
            else:
                if type(entry) is not dict:
                    entry = self._entries[key] = {id(entry): entry}
                entry[id(timer)] = timer
                self._surplus += 1
            if timer._when is None:
                self._others += 1

        def note_cancelled(self, timer: Any) -> None:
            key = timer._key
            entry = self._entries.get(key)
            if entry is timer:
                self._entries.pop(key, None)
            elif type(entry) is dict and entry.pop(id(timer), None) is not None:
                self._surplus -= 1
                if not entry:
                    self._entries.pop(key, None)
                    self._surplus += 1
            else:
                return  # it is not scheduled
            if timer._when is None:
                self._others -= 1

        def _settle(self) -> None:
            """Let new keys join the heap; sweep when it has too many of timers that are gone."""
            fresh, keys = self._fresh, self._keys
            allowed = SWEEP_MIN_CANCELLED + SWEEP_FRACTION * len(self._entries)
            if len(fresh) > len(keys) or len(keys) > allowed:
                self._make_heap()
                return
            count = len(fresh)
            for key in fresh[:count]:
                heapq.heappush(keys, key)
            del fresh[:count]

        def _make_heap(self) -> None:
            count = len(self._fresh)
            keys = list(self._entries)
            heapq.heapify(keys)
            self._keys = keys
            del self._fresh[:count]

        def next_deadline(self) -> int:
            if self._fresh:
                self._settle()
            keys, entries = self._keys, self._entries
            while keys:
                if keys[0] in entries:
                    return deadline_of_key(keys[0])
                heapq.heappop(keys)
            return NEVER_NS

        def take_due(self, now_ns: int, into: list[Any]) -> None:
            if self._fresh:
                self._settle()
            keys = self._keys
            latest = float(now_ns) if now_ns <= EXACT else min(now_ns, NEVER_NS - 1)
            if not keys or keys[0] > latest:
                return
            before = len(into)
            try:
                self._take(self._take_keys(latest), into)
            except BaseException:  # an interrupt, between any two steps
                self._recover(into[before:])
                raise
            if self._others:
                self._others -= sum(timer._when is None for timer in into[before:])

        def _take(self, due: list[float], into: list[Any]) -> None:
            entries = self._entries
            for key in due:
                entry = entries.get(key)
                if type(entry) is dict:
                    into += sorted(entry.values(), key=order_among_equals)
                    self._surplus -= len(entry) - 1
                elif entry is not None:
                    into.append(entry)
                else:
                    continue
                entries.pop(key, None)

        def _recover(self, taken: list[Any]) -> None:
            """Find out what is scheduled after what was interrupted."""
            for timer in taken:
                self.note_cancelled(timer)
            left = self.timers()
            self._surplus = len(left) - len(self._entries)
            self._others = sum(timer._when is None for timer in left)
            self._make_heap()

        def _take_keys(self, latest: float) -> list[float]:
            """The keys up to this one, in order."""
            keys = self._keys
            due: list[float] = []
            while keys and keys[0] <= latest:
                if len(due) > BULK_MIN + len(keys) // BULK_FRACTION:
                    due += sorted([key for key in keys if key <= latest])
                    later = [key for key in keys if key > latest]
                    heapq.heapify(later)
                    self._keys = later
                    break
                due.append(heapq.heappop(keys))
            return due

        def clear(self) -> None:
            self._keys.clear()
            self._fresh.clear()
            self._entries.clear()
            self._surplus = self._others = 0

    def _keyed_handle_timer(
        loop: Owner,
        deadline_ns: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> TimedCallback:
        timer = KeyedTimedCallback(loop, 0.0, callback, args, context)
        timer._when = None
        timer._key = deadline_ns
        timer._seconds = deadline_ns / 1e9
        return timer

    new_heap, new_timer, new_handle_timer = HeapqTimerHeap, KeyedTimedCallback, _keyed_handle_timer
