"""The order of timers: a line of timers that came in order, and a heap of the others.

A timer that is not due before the last of the line joins the line, which costs next to nothing. Most timers
do, since programs use few different delays. The others go into the heap. Cancelling only marks a timer. Line
and heap are swept when cancelled timers are more than half of all. So cancelling costs O(1), however many
timers there are.

The heap holds no objects but *places*, each a deadline and the number of a slot, in memory of its own. To
find the first place, the heap reads nothing else, unless two are due in the same nanosecond. The timers
lie in their slots, a list, which the collector sees. Four places have the same parent; together they fill a
line of the processor's cache. The free slots stand behind the places that are taken.

    _places   10.2:3  10.5:0  11.7:2  10.9:5 |  :1  :4
    _timers   0: ---  1: None  2: ---  3: ---  4: None  5: ---
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from whorl.core import limits, states
from whorl.core.figures import Figures
from whorl.core.timers.timed_callback import TimedCallback

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from collections.abc import Callable


class TimerHeap:
    """Timers in the order in which they fall due."""

    def __init__(self) -> None:
        self._timers: list[Any] = []  # the timers of the heap, each in its slot
        self._line: list[Any] = []
        self._first = 0  # the line goes from here on; before that, places that are empty
        self._entries = 0  # how many are in the heap
        self._capacity = 0  # the number of places that there is memory for
        self._places = no_places(self)
        self._cancelled = 0  # how many of both are cancelled
        self._keep_alive_count = 0  # the number of timers that keep the loop alive
        self._numbers = 0  # the number of the timer scheduled last
        self._latest = 0  # the slot of the timer that came into the heap last
        self._seen_count = 0  # the number of entries, for other threads, if there is no GIL

    def clear(self) -> None:
        """Forget all timers."""
        former = self._timers[:], self._line[:]  # kept until all is in order: dropping it may run any code
        self._timers.clear()
        self._line.clear()
        self._first = self._entries = self._capacity = self._cancelled = self._keep_alive_count = 0
        self._places = no_places(self)
        show_count(self)
        del former

    def __dealloc__(self) -> None:
        self._places = no_places(self)

    def __len__(self) -> int:
        return self.count()

    def count(self) -> int:
        """Return the number of entries; the cancelled ones among them are counted, too."""
        return self._entries + len(self._line) - self._first

    def seen_count(self) -> int:
        """Return the same, to any thread."""
        return self.count() if HAS_GIL else self._seen_count

    def timers(self) -> list[TimedCallback]:
        """Return all entries, in no particular order."""
        timers = [timer for timer in self._timers if timer is not None] + self._line[self._first :]
        for timer in timers:
            take_in(timer)
        return timers

    def push(self, timer: TimedCallback) -> None:
        """Schedule a timer.

        By now the previous timer has shown whether anything but the heap refers to it.
        """
        self._numbers = self._numbers + 1
        timer._number = self._numbers
        line = self._line
        size = len(line)
        leave_out_at(line, size - 1)
        leave_out_at(self._timers, self._latest)
        if size == 0:
            append(line, timer)
        else:
            last: TimedCallback = line[size - 1]
            if before(timer, last):
                self._push_on_heap(timer)
            else:
                append(line, timer)
        timer._scheduled = True
        self._keep_alive_count = self._keep_alive_count + timer._keeps_alive
        show_count(self)

    def _push_on_heap(self, timer: TimedCallback) -> None:
        if self._entries == self._capacity:
            reserve_capacity(self, max(limits.LEAST_PLACES, 2 * self._capacity))
        position = self._entries
        slot = self._places[position].slot
        if slot < len(self._timers):
            self._timers[slot] = timer
        else:
            self._timers.append(timer)
        self._latest = slot
        self._entries = position + 1
        self._sift_up(0, position, new_place(timer._deadline_ns, slot))

    def _sift_up(self, top: int, position: int, place: Pair) -> None:
        """Let an entry rise from `position` to its place, at `top` or below."""
        timers, places = self._timers, self._places
        while position > top:
            parent = (position - 1) >> 2
            if not place_before(timers, place, places[parent]):
                break
            places[position] = places[parent]
            position = parent
        places[position] = place

    def _sift_down(self, top: int, place: Pair) -> None:
        """Put an entry in its place, at `top` or below.

        As a rule that is at the bottom. So the others rise first, and then the entry, if it must.
        """
        timers, places, size = self._timers, self._places, self._entries
        position = top
        child = 4 * position + 1
        while child < size:
            child = first_of_four(timers, places, child, size)
            places[position] = places[child]
            position = child
            child = 4 * position + 1
        self._sift_up(top, position, place)

    def _next(self) -> TimedCallback | None:
        """Return the timer that falls due first; drop the cancelled ones before it."""
        while True:
            timer = self._earliest()
            if timer is None or not timer._cancelled:
                return timer
            self._cancelled = self._cancelled - 1
            self._take(timer)
            timer = None  # before the search for the next one: freeing this one may schedule others

    def _earliest(self) -> TimedCallback | None:
        """Return the first entry, cancelled or not."""
        line = self._line
        if len(line) == 0:
            return self._timers[self._places[0].slot] if self._entries > 0 else None
        first: TimedCallback = line[self._first]
        if self._entries > 0 and self._places[0].deadline <= first._deadline_ns:
            top: TimedCallback = self._timers[self._places[0].slot]
            if before(top, first):
                return top
        return first

    def _take(self, timer: TimedCallback) -> None:
        """Take the first entry out."""
        line = self._line
        first = self._first
        if len(line) == 0 or line[first] is not timer:
            self._pop()
            return
        fetch(line, first + limits.ENTRIES_AHEAD)
        line[first] = None
        self._first = first = first + 1
        if first == len(line):
            empty(line)
            self._first = 0
        elif first >= limits.LINE_GAP and 2 * first > len(line):
            del line[:first]
            self._first = 0

    def _pop(self) -> None:
        """Take the top out of the heap."""
        places = self._places
        slot = places[0].slot
        self._entries = last = self._entries - 1
        moved = places[last]
        places[last] = new_place(0, slot)
        if last > 0:
            self._sift_down(0, moved)
        self._timers[slot] = None

    def _pack(self) -> None:
        """Take the cancelled timers out of the heap, and give back memory that it does not need."""
        timers: list[Any] = []  # made first: this may run the collector, which may run any code
        for position in range(self._entries):
            timer: TimedCallback = self._timers[self._places[position].slot]
            if not timer._cancelled:
                timers.append(timer)
        former = self._timers  # kept until all is in order again: dropping it may run any code
        size = len(timers)
        self._cancelled -= self._entries - size
        self._timers = timers
        self._entries = size
        # Never more than before: that might fail.
        reserve_capacity(self, min(self._capacity, max(limits.LEAST_PLACES, 2 * size)))
        for slot in range(size):
            timer = timers[slot]
            self._places[slot] = new_place(timer._deadline_ns, slot)
        self._heapify()
        del former

    def _heapify(self) -> None:
        """Put unordered places into the order of a heap."""
        for position in range((self._entries - 2) >> 2, -1, -1):
            self._sift_down(position, self._places[position])

    def next_deadline(self) -> int:
        """Return when the first timer falls due, in nanoseconds; `NEVER_NS` if there is none."""
        timer = self._next()
        show_count(self)
        return limits.NEVER_NS if timer is None else timer._deadline_ns

    def take_due(self, now_ns: int, into: list[Any], figures: Figures, since: int) -> None:
        """Append the timers whose deadline has been reached; note how late they are, unless `since` is -1.

        A deadline before `since` counts as `since`.
        """
        latest = min(now_ns, limits.NEVER_NS - 1)
        former = self._entries
        while True:
            timer = self._next()
            if timer is None or timer._deadline_ns > latest:
                break
            self._keep_alive_count = self._keep_alive_count - timer._keeps_alive
            take_in(timer)
            into.append(timer)
            self._take(timer)
            timer._fell_due()
            if since >= 0:
                note(figures, states.LATE, now_ns - max(timer._deadline_ns, since))
            waiting = self._entries + len(self._line) - self._first
            if former - self._entries > limits.SORT_MIN_DUE + waiting // limits.SORT_FRACTION:
                self._sort_due(latest)
                former = self._entries
        if self._capacity > limits.LEAST_PLACES and self._entries < self._capacity >> 3:
            self._pack()
        show_count(self)

    def _sort_due(self, latest: int) -> None:
        """Let the timers of the heap that are due by `latest` join the line, in order.

        Sorting them takes a fraction of the time of taking out one after the other.
        """
        due: list[Any] = []
        merged: list[Any] = []  # both made first: this may run the collector, which may run any code
        if not append_sorted(self, latest, due):
            return
        line, end, index, count = self._line, self._first, 0, len(due)
        while end < len(line):
            timer: TimedCallback = line[end]
            if timer._deadline_ns > latest:
                break
            while index < count and not before(timer, due[index]):
                fetch(due, index + limits.ENTRIES_AHEAD)
                merged.append(due[index])
                index += 1
            merged.append(timer)
            end += 1
        for position in range(index, count):
            merged.append(due[position])
        replace(line, self._first, end, merged)
        self._forget_due(latest)

    def _forget_due(self, latest: int) -> None:
        """Take the timers that are due by `latest` out of the heap."""
        places, entries, kept = self._places, self._entries, 0
        for position in range(entries):
            place = places[position]
            if place.deadline > latest:
                places[position] = places[kept]
                places[kept] = place
                kept += 1
        self._entries = kept
        for position in range(kept, entries):
            fetch(self._timers, places[min(position + limits.ENTRIES_AHEAD, entries - 1)].slot)
            self._timers[places[position].slot] = None
        self._heapify()

    def note_cancelled(self, timer: TimedCallback) -> None:
        """Drop a cancelled timer at the end of the line, else count it; sweep if there are too many."""
        self._keep_alive_count = self._keep_alive_count - timer._keeps_alive
        line = self._line
        size = len(line)
        if size > 0 and line[size - 1] is timer:
            last_taken(line)
            if self._cancelled > 0 or self._first > 0:
                self._shorten_line()
            show_count(self)
            return
        self._cancelled = self._cancelled + 1
        are_many = self._cancelled > limits.SWEEP_MIN_CANCELLED
        if are_many and self._cancelled * limits.SWEEP_FRACTION > len(self):
            self._sweep()
            show_count(self)

    def _shorten_line(self) -> None:
        """Take the cancelled timers at the line's end out in one step: freeing them may schedule others."""
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
        line: list[Any] = []
        for position in range(self._first, len(self._line)):
            timer: TimedCallback = self._line[position]
            if not timer._cancelled:
                line.append(timer)
        former = self._line  # kept until all is in order again: dropping it may run any code
        self._cancelled -= len(former) - self._first - len(line)
        self._line = line
        self._first = 0
        self._pack()
        del former


if cython.compiled:
    answer_for_timers(TimerHeap)  # type: ignore[name-defined] # noqa: F821 (a C function)
else:
    from whorl.core.callback import fetch
    from whorl.core.figures import note
    from whorl.core.lists import append, empty, last_taken
    from whorl.core.threads import HAS_GIL

    class Pair(NamedTuple):
        """A place: a deadline, and the number of a slot. Compiled, a struct."""

        deadline: int
        slot: int

    new_place = Pair

    def leave_out_at(timers: list[Any], position: int) -> None:
        """Hide a timer from the collector if only the heap refers to it; uncompiled, do nothing."""

    def take_in(timer: TimedCallback) -> None:
        """Show a timer to the collector again, as other code may refer to it; uncompiled, do nothing."""

    def order_of(timer: TimedCallback) -> tuple[int, float, int]:
        """Return the sort key of a timer."""
        return timer._deadline_ns, timer._seconds, timer._number

    def before(a: TimedCallback, b: TimedCallback) -> bool:
        """Return whether `a` falls due before `b`."""
        return order_of(a) < order_of(b)

    def place_before(timers: list[Any], a: Pair, b: Pair) -> bool:
        """Return whether the timer at `a` falls due before the one at `b`."""
        if a.deadline == b.deadline:
            return before(timers[a.slot], timers[b.slot])
        return a.deadline < b.deadline

    def first_of_four(timers: list[Any], places: list[Pair], position: int, size: int) -> int:
        """Return the position of the first of the four places from `position` on; there may be fewer."""
        first = position
        for other in range(position + 1, min(position + 4, size)):
            if place_before(timers, places[other], places[first]):
                first = other
        return first

    def append_sorted(heap: TimerHeap, latest: int, due: list[Any]) -> bool:
        """Append the timers of the heap that are due by `latest`, in order; return whether that worked."""
        found = [place.slot for place in heap._places[: heap._entries] if place.deadline <= latest]
        due += sorted([heap._timers[slot] for slot in found], key=order_of)
        return True

    def replace(line: list[Any], first: int, end: int, by: list[Any]) -> None:
        """Replace the part of a line from `first` to `end` by another list."""
        line[first:end] = by

    def reserve_capacity(heap: TimerHeap, capacity: int) -> None:
        """Make memory for `capacity` places; the places that are not taken get slots of their own."""
        size = heap._entries
        heap._places[size:] = [new_place(0, slot) for slot in range(size, capacity)]
        heap._capacity = capacity

    def no_places(heap: TimerHeap) -> list[Pair]:
        """Free the heap's places; return the empty memory."""
        return []

    def show_count(heap: TimerHeap) -> None:
        """Let other threads see how many timers there are; uncompiled, they count them."""

    def recovering(method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method that puts the timers in order again when it fails.

        Uncompiled, a signal handler may raise between any two steps. Compiled, none runs in between.
        """

        def call(self: TimerHeap, *args: Any) -> Any:
            try:
                return method(self, *args)
            except BaseException:
                recover(self)
                raise

        return call

    def recover(heap: TimerHeap) -> None:
        """Put all scheduled timers into the line, each once."""
        former = heap._timers + heap._line  # kept until all is in order again: dropping it may run any code
        timers = {id(timer): timer for timer in former if timer is not None and timer._scheduled}
        heap.clear()
        heap._line = sorted(timers.values(), key=order_of)
        heap._keep_alive_count = sum(timer._keeps_alive for timer in heap._line)

    take_all_due: Callable[..., None] = TimerHeap.take_due

    def take_due(self: TimerHeap, now_ns: int, into: list[Any], figures: Figures, since: int) -> None:
        """Do the same; after an interrupt, mark the timers already appended as no longer scheduled."""
        before = len(into)
        try:
            take_all_due(self, now_ns, into, figures, since)
        except BaseException:
            for timer in into[before:]:
                if timer._scheduled:
                    timer._fell_due()
            raise

    TimerHeap.push = recovering(TimerHeap.push)  # type: ignore[method-assign]
    TimerHeap.next_deadline = recovering(TimerHeap.next_deadline)  # type: ignore[method-assign]
    TimerHeap.take_due = recovering(take_due)  # type: ignore[method-assign]
    TimerHeap.note_cancelled = recovering(TimerHeap.note_cancelled)  # type: ignore[method-assign]
