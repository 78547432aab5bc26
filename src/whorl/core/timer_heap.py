"""Which timer falls due next: a line of timers that came in order, and a heap of the others.

A timer that is not due before the last of the line joins the line, which costs next to nothing, and so
do most: programs know few different delays. The others go into the heap. Cancelling only marks a timer;
both are swept when cancelled timers are more than half of all, so that cancelling costs O(1) however many
there are.

This is what the loop uses compiled; uncompiled, `keyed_timers` does the same faster.
"""

from __future__ import annotations

from typing import Any

from whorl.core.limits import LINE_GAP, NEVER_NS, SWEEP_FRACTION, SWEEP_MIN_CANCELLED
from whorl.core.timer import TimedCallback

try:
    import cython
except ImportError:
    from whorl.core import uncompiled as cython


class TimerHeap:
    """Timers in the order in which they fall due."""

    __slots__ = ("_cancelled", "_entries", "_first", "_keepers", "_line", "_numbers")

    def __init__(self) -> None:
        self._entries: list[Any] = []  # the heap
        self._line: list[Any] = []  # from `_first` on; before that, places that are empty
        self._first = 0
        self._cancelled = 0  # how many of both are cancelled
        self._keepers = 0  # how many timers keep the loop alive
        self._numbers = 0  # the number of the timer scheduled last

    def __len__(self) -> int:
        return len(self._entries) + len(self._line) - self._first

    def timers(self) -> list[TimedCallback]:
        """All entries, in no particular order."""
        return self._entries + self._line[self._first :]

    def push(self, timer: TimedCallback) -> None:
        """Schedule a timer."""
        self._numbers += 1
        timer._number = self._numbers
        timer._scheduled = True
        self._keepers += timer._when is not None
        line = self._line
        size = len(line)
        if size > 0:
            last: TimedCallback = line[size - 1]
            if before(timer, last):
                self._push_on_heap(timer)
                return
        line.append(timer)

    def _push_on_heap(self, timer: TimedCallback) -> None:
        heap = self._entries
        position = len(heap)
        heap.append(timer)
        while position > 0:
            parent = (position - 1) >> 1
            above: TimedCallback = heap[parent]
            if not before(timer, above):
                break
            heap[position] = above
            position = parent
        heap[position] = timer

    def _next(self) -> TimedCallback | None:
        """The timer that falls due first; cancelled ones before it are let go."""
        while True:
            timer = self._earliest()
            if timer is None or not timer._cancelled:
                return timer
            self._cancelled -= 1
            self._take(timer)
            timer = None  # now, before the next one is looked for: its end may schedule others

    def _earliest(self) -> TimedCallback | None:
        """The first entry, cancelled or not."""
        heap, line = self._entries, self._line
        top: TimedCallback | None = heap[0] if len(heap) > 0 else None
        if len(line) == 0:
            return top
        first: TimedCallback = line[self._first]
        return first if top is None or before(first, top) else top

    def _take(self, timer: TimedCallback) -> None:
        """Take the first entry out."""
        line = self._line
        first = self._first
        if len(line) == 0 or line[first] is not timer:
            self._pop()
            return
        line[first] = None
        self._first = first = first + 1
        if first == len(line):
            line.clear()
            self._first = 0
        elif first >= LINE_GAP and 2 * first > len(line):
            del line[:first]
            self._first = 0

    def _pop(self) -> None:
        """Take the top out of the heap."""
        heap = self._entries
        last = heap.pop()
        if len(heap) > 0:
            heap[0] = last
            self._sift_down(0)

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
        timer = self._next()
        return NEVER_NS if timer is None else timer._deadline_ns

    def take_due(self, now_ns: int, into: list[Any]) -> None:
        """Append the timers whose deadline has been reached."""
        while True:
            timer = self._next()
            if timer is None or timer._deadline_ns > now_ns or timer._deadline_ns == NEVER_NS:
                break
            self._keepers -= timer._when is not None
            into.append(timer)
            self._take(timer)
            timer._fell_due()

    def note_cancelled(self, timer: TimedCallback) -> None:
        """Let go of a cancelled timer if it is the last of the line, else count it; sweep when too many."""
        self._keepers -= timer._when is not None
        line = self._line
        size = len(line)
        if size > 0 and line[size - 1] is timer:
            line.pop()
            if self._cancelled > 0 or self._first > 0:
                self._shorten_line()
            return
        self._cancelled += 1
        if self._cancelled > SWEEP_MIN_CANCELLED and self._cancelled * SWEEP_FRACTION > len(self):
            self._sweep()

    def _shorten_line(self) -> None:
        """Take the cancelled timers at the end of the line out at once, as their end may schedule some."""
        line = self._line
        size = len(line)
        while size > self._first:
            last: TimedCallback = line[size - 1]
            if not last._cancelled:
                break
            size -= 1
        self._cancelled -= len(line) - size
        if size == self._first:
            size = self._first = 0
        if size < len(line):
            del line[size:]

    def _sweep(self) -> None:
        """Take all cancelled timers out."""
        swept = self._entries, self._line  # kept until all is in order again: they may free anything
        self._line = uncancelled(self._line, self._first)
        self._first = 0
        self._entries = uncancelled(self._entries, 0)
        self._cancelled = 0
        for position in range(len(self._entries) // 2 - 1, -1, -1):
            self._sift_down(position)
        del swept

    def clear(self) -> None:
        """Forget all timers."""
        self._entries = []
        self._line = []
        self._first = 0
        self._cancelled = 0
        self._keepers = 0


def uncancelled(entries: list[Any], first: int) -> list[Any]:
    """Those that are not cancelled, from `first` on."""
    kept = []
    for position in range(first, len(entries)):
        timer: TimedCallback = entries[position]
        if not timer._cancelled:
            kept.append(timer)
    return kept


if not cython.compiled:

    def before(a: TimedCallback, b: TimedCallback) -> bool:
        """Whether `a` falls due before `b`."""
        return (a._deadline_ns, a._seconds, a._number) < (b._deadline_ns, b._seconds, b._number)
