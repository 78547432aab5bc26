"""The timers of the uncompiled build: the heap holds numbers only, and the timers are found by them.

`heapq` compares numbers in C, and the collector need not look at them.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

from whorl.core.callback import AbstractLoop
from whorl.core.limits import NEVER_NS, SWEEP_FRACTION, SWEEP_MIN_CANCELLED
from whorl.core.timers.heap import TimerHeap
from whorl.core.timers.timed_callback import TimedCallback, seconds_of

EXACT = 1 << 53  # floats tell integers up to here apart
BULK_MIN = 64  # From so many due timers on, and when they are more than ...
BULK_FRACTION = 8  # ... one in so many of all, the others are picked out at once.


class KeyedTimedCallback(TimedCallback):
    """A timer that knows a key, by which the heap finds it, and computes its deadline when asked.

    The key is the time in nanoseconds, a float: rounded up it is the deadline. A handle's timer
    has its deadline for a key.
    """

    __slots__ = ("_key", "_when")

    def __init__(
        self,
        loop: AbstractLoop,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> None:
        self._loop = loop
        self._callback = callback
        self._args = args
        self._snapshot = copy_context() if context is None else context
        self._cancelled = False
        self._source_traceback = None
        self._repr = None
        self._when = when  # type: ignore[misc]  # else a property
        self._seconds = seconds = when if type(when) is float else seconds_of(when)
        self._key: float = seconds * 1e9 if seconds == seconds else -math.inf

    def when(self) -> float:
        """The deadline, in seconds of the loop's clock."""
        when: float = self._when
        return when

    @property
    def _deadline_ns(self) -> int:  # type: ignore[override]
        return deadline_of_key(self._key)

    @property
    def _scheduled(self) -> bool:  # type: ignore[override]
        loop: Any = self._loop
        return loop._timer_queue.holds(self)  # type: ignore[no-any-return]

    def cancel(self) -> None:
        """Make sure that the function is not called."""
        if not self._cancelled:
            loop: Any = self._loop
            self._cancelled = True
            if loop._debug:
                self._repr = repr(self)
            self._callback = None
            self._args = None
            loop._timer_queue.note_cancelled(self)


def deadline_of_key(key: float) -> int:
    """The nanosecond at which a timer with this key is due."""
    if type(key) is int or -NEVER_NS < key < NEVER_NS:
        return math.ceil(key)
    return NEVER_NS if key > 0 else -NEVER_NS


def order_among_equals(timer: KeyedTimedCallback) -> tuple[bool, float]:
    """What orders timers with the same key: NaN comes first; two times may make one key."""
    seconds = timer._seconds
    return seconds == seconds, seconds


class KeyedTimers(TimerHeap):
    """Keys in a heap, and the timers by their keys.

    A new key joins the heap when somebody looks at it, once a turn. A cancelled timer goes at
    once; its key stays until it comes up, or until a sweep. Timers with the same key share a
    place: a dictionary, in which they keep their order.
    """

    __slots__ = ("_fresh", "_keys", "_others", "_surplus")

    def __init__(self) -> None:
        self._line: list[Any] = []  # nothing stands in it
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
        """Return whether a timer is scheduled."""
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
            timer._scheduled = True
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
            self._take_timers(self._take_keys(latest), into)
            if self._others:
                self._tell_handles(into[before:])
        except BaseException:  # an interrupt, between any two steps
            self._recover(into[before:])
            raise

    def _take_timers(self, due: list[float], into: list[Any]) -> None:
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

    def _tell_handles(self, due: list[Any]) -> None:
        of_handles = [timer for timer in due if timer._when is None]
        self._others -= len(of_handles)
        for timer in of_handles:
            timer._fell_due()

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
