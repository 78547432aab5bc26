"""The heap of timers against a sorted list, with timers whose end changes the heap while it is at work."""

from __future__ import annotations

import contextvars
import gc
import math
import random
import tracemalloc
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.loop_fakes import ObedientClock
from whorl.core import Loop, RunMode
from whorl.core.limits import LEAST_PLACES, NEVER_NS, SWEEP_FRACTION, SWEEP_MIN_CANCELLED
from whorl.core.loop.loop import COMPILED
from whorl.core.timers.timed_callback import TimedCallback, deadline_of

KEPT: contextvars.ContextVar[object] = contextvars.ContextVar("kept")
START_NS = 1_000_000


class Timetable:
    """A loop's timers, and what should become of them."""

    def __init__(self) -> None:
        self.clock = ObedientClock()
        self.clock.clock = START_NS
        self.loop = Loop(kernel=self.clock)
        self.ran: list[int] = []
        self.waiting: dict[int, tuple[float, Any]] = {}
        self.made = 0

    def at(self, when: float, context: contextvars.Context | None = None) -> Any:
        """Schedule a timer for a time in seconds; it is known by its number."""
        number = self.made
        self.made += 1
        timer = self.loop.call_at(when, self._call, number, context=context)
        self.waiting[number] = when, timer
        return timer

    def cancel(self, number: int) -> None:
        self.waiting.pop(number)[1].cancel()

    def _call(self, number: int) -> None:
        del self.waiting[number]  # each runs once, and those that are cancelled do not
        self.ran.append(number)

    def due(self) -> list[int]:
        """Return the timers to run by now, in order."""
        waiting = sorted((when, number) for number, (when, _) in self.waiting.items())
        return [number for when, number in waiting if deadline_of(when) <= self.clock.clock]

    def advance(self, nanoseconds: int) -> None:
        """Let time pass, and call due timers."""
        self.clock.clock += nanoseconds
        self.ran.clear()
        self.loop.run(RunMode.NOWAIT)

    def check(self, nanoseconds: int) -> None:
        """Let time pass, and check that due timers run in order."""
        self.clock.clock += nanoseconds
        expected = self.due()
        self.advance(0)
        assert self.ran == expected

    def check_size(self) -> None:
        """Check that all waiting timers are there, and that cancelled ones do not pile up."""
        count = self.loop.metrics().timers
        assert len(self.waiting) <= count <= SWEEP_FRACTION * len(self.waiting) + SWEEP_MIN_CANCELLED + 1

    def end(self) -> None:
        for number in list(self.waiting):
            self.cancel(number)
        assert not self.loop.alive()
        self.loop.close()


# Few different nanoseconds, so that many are equal, and times between them.
TIMES = st.integers(0, 4000).map(lambda tenths: (START_NS + tenths / 10) / 1e9)
STEPS = st.one_of(
    st.tuples(st.just("at"), TIMES),
    st.tuples(st.just("many"), st.integers(1, 700)),
    st.tuples(st.just("cancel"), st.integers(0, 2**16)),
    st.tuples(st.just("cancel many"), st.floats(0, 1)),
    st.tuples(st.just("advance"), st.integers(0, 150)),
)


@pytest.mark.slow
@given(st.lists(STEPS, max_size=25))
@settings(max_examples=200, deadline=None)
def test_timers_come_and_go_as_in_a_sorted_list(steps: list[tuple[str, Any]]) -> None:
    table = Timetable()
    for number, (step, value) in enumerate(steps):
        chance = random.Random(number)
        if step == "at":
            table.at(value)
        elif step == "many":
            for _ in range(value):
                table.at((table.clock.clock + chance.randrange(2000) / 10) / 1e9)
        elif step == "cancel" and table.waiting:
            table.cancel(list(table.waiting)[value % len(table.waiting)])
        elif step == "cancel many":
            for each in list(table.waiting):
                if chance.random() < value:
                    table.cancel(each)
        elif step == "advance":
            table.check(value)
        table.check_size()
    table.check(1000)
    assert table.waiting == {}
    table.end()


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 17, LEAST_PLACES, LEAST_PLACES + 1, 3000])
def test_timers_in_reverse_order_run_in_order(count: int) -> None:
    table = Timetable()
    for number in range(count, 0, -1):
        table.at((START_NS + number) / 1e9)
    table.advance(count + 1)  # a float is no exact nanosecond
    assert table.ran == list(range(count - 1, -1, -1))
    table.end()


def test_timers_of_one_nanosecond_run_by_their_seconds_and_then_in_the_order_of_scheduling() -> None:
    table = Timetable()
    table.at(2.0)  # what comes now comes before it, and goes into the heap
    times = [1.0000000005 + (number * 7 % 5) * 1e-10 for number in range(500)]
    assert {deadline_of(when) for when in times} == {1_000_000_001}
    for when in times:
        table.at(when)
    table.check(2_000_000_000)
    table.end()


@pytest.mark.parametrize("different", [1, 2, 50, 300, 10**6, 10**15])
@pytest.mark.parametrize("in_order", [0.0, 0.3, 0.9])
def test_many_timers_due_at_once_run_in_order(different: int, in_order: float) -> None:
    table = Timetable()
    order = random.Random(different)
    latest = 0
    for _ in range(2000):
        latest += order.randrange(different) // 1000
        due = latest if order.random() < in_order else order.randrange(different)
        table.at((START_NS + due + order.choice((0, 0.2, 0.4))) / 1e9)
    for number in range(0, 2000, 3):
        table.cancel(number)
    table.check(different // 2)
    table.check_size()
    table.check(different)
    assert table.waiting == {}
    table.end()


def test_many_timers_due_at_once_may_be_as_far_apart_as_times_can_be() -> None:
    table = Timetable()
    order = random.Random(1)
    far = [-math.inf, -1e300, -9e9, -1.0, 0.0, 1.0, 9.2e9]
    for _ in range(600):
        table.at(order.choice(far) if order.random() < 0.3 else order.uniform(-9e9, 9e9))
    never = [table.made, table.made + 1]
    for when in (math.inf, 1e300):
        table.at(when)
    table.clock.clock = NEVER_NS
    expected = [number for number in table.due() if number not in never]
    table.advance(0)
    assert table.ran == expected
    assert sorted(table.waiting) == never
    table.end()


def test_the_room_of_a_crowd_is_given_back() -> None:
    table = Timetable()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(20_000, 0, -1):
            table.at((START_NS + number) / 1e9)
        table.advance(30_000)
        assert len(table.ran) == 20_000
        table.ran, table.waiting = [], {}
        gc.collect()
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert after - before < 200_000  # 20,000 places alone take 320,000 bytes, their slots 160,000
    table.end()


# Timers whose end changes the heap.


class Farewell:
    """An object that calls a function when the last reference to it is gone."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def __del__(self) -> None:
        self._act()


def context_that_ends_with(act: Callable[[], object]) -> contextvars.Context:
    """Return a context with an object that calls a function at its end: it ends with the timer."""
    context = contextvars.copy_context()
    context.run(KEPT.set, Farewell(act))
    return context


class Meddler:
    """The actions at the ends of timers: they make timers, which may do the same, and cancel others."""

    def __init__(self, table: Timetable, seed: int) -> None:
        self.table = table
        self.chance = random.Random(seed)
        self.left = 3000

    def make(self) -> None:
        """Make a timer for a time soon; half of them call a function at their end."""
        when = (self.table.clock.clock + self.chance.randrange(-20, 300)) / 1e9
        ends_with = context_that_ends_with(self.act) if self.chance.random() < 0.5 else None
        self.table.at(when, ends_with)

    def cancel_some(self, count: int) -> None:
        for _ in range(count):
            if self.table.waiting:
                self.table.cancel(self.chance.choice(list(self.table.waiting)))

    def act(self) -> None:
        self.left -= 1
        if self.left > 0:
            for _ in range(self.chance.randrange(3)):
                self.make()
            self.cancel_some(self.chance.randrange(3))


@pytest.mark.parametrize("seed", range(12))
def test_timers_whose_end_makes_and_cancels_timers_lose_none(seed: int) -> None:
    table = Timetable()
    meddler = Meddler(table, seed)
    for _ in range(30):
        for _ in range(meddler.chance.randrange(60)):
            meddler.make()
        meddler.cancel_some(meddler.chance.randrange(50))
        table.advance(meddler.chance.randrange(80))
    meddler.left = 0
    for _ in range(3):
        table.advance(1000)
    assert table.waiting == {}
    assert not table.loop.alive()
    assert table.loop.metrics().timers == 0
    table.loop.close()


def test_the_ends_of_those_swept_out_find_the_heap_in_order() -> None:
    table = Timetable()
    order = random.Random(1)
    table.at(10.0)
    first = table.made
    for _ in range(200):
        when = 1 + order.random()
        table.at(when, context_that_ends_with(lambda: table.at(5 + order.random())))
        table.at(1 + order.random())
    for number in range(first, table.made):
        if number % 4:
            table.cancel(number)
    assert table.made > 450  # the ends of many of them have come
    table.check(2_000_000_000)
    table.end()


def test_a_heap_that_is_emptied_by_the_end_of_one_of_its_timers_is_usable() -> None:
    table = Timetable()
    loop = table.loop
    at_end: list[int] = []

    def close() -> None:
        at_end.append(len(loop._timer_queue))
        loop.close()

    table.at(3.0)
    for number in range(SWEEP_MIN_CANCELLED * 3):
        table.at(2 - number / 1000, context_that_ends_with(close) if number == 0 else None)
    for number in range(1, SWEEP_MIN_CANCELLED * 3):
        table.cancel(number)
    assert len(at_end) == 1
    assert len(loop._timer_queue) == 0
    assert loop._timer_queue.timers() == []
    for number in list(table.waiting):
        table.cancel(number)


def test_a_loop_that_nobody_refers_to_is_collected_with_the_timers_in_its_heap() -> None:
    table = Timetable()
    ends: list[int] = []
    for number in range(50, 0, -1):
        table.at(float(number), context_that_ends_with(lambda: ends.append(1)))
    table.loop.call_soon(table.loop.stop)
    gone = weakref.ref(table.clock)  # which the loop has
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of the loop, which nobody closed
        del table
        gc.collect()
    assert gone() is None
    assert len(ends) == 50


def test_the_view_of_the_timers_shows_those_that_wait() -> None:
    table = Timetable()
    for when in (5.0, 1.0, 3.0, 2.0, 4.0, 6.0):
        table.at(when)
    table.advance(2_000_000_000)
    assert sorted(timer.when() for timer in table.loop._timer_queue.timers()) == [3.0, 4.0, 5.0, 6.0]
    table.end()


# The collector's view of them.


def watched_timers() -> int:
    """Return the number of timers that the collector tracks."""
    return sum(type(thing) is TimedCallback for thing in gc.get_objects())


def times_in(order: str) -> list[float]:
    """Return times for timers that all lie in the line, or almost all in the heap."""
    return [float(number if order == "line" else 1000 - number) for number in range(1, 200)]


@pytest.mark.gil("the collector sees all timers")
@pytest.mark.skipif(not COMPILED, reason="uncompiled, the collector sees them all")
@pytest.mark.parametrize("order", ["line", "heap"])
def test_timers_that_nobody_knows_are_no_work_for_the_collector(order: str) -> None:
    loop = Loop()
    few = watched_timers()
    kept = []
    for when in times_in(order):
        loop.call_later(when, list)
        kept.append(loop.call_later(when, list))
        loop.call_later(when, list)
    assert few + 199 <= watched_timers() <= few + 199 + 2
    assert all(gc.is_tracked(timer) for timer in kept)
    assert all(gc.is_tracked(timer) for timer in loop._timer_queue.timers())  # now they are known
    assert watched_timers() == few + 3 * 199
    loop.close()


@pytest.mark.gil("the collector ends objects in another order")
@pytest.mark.parametrize("order", ["line", "heap"])
def test_a_dropped_loop_is_collected_with_timers_that_nobody_knows(order: str) -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    ends: list[int] = []
    for when in times_in(order):
        # Each refers to the loop, and to something that ends with it.
        loop.call_later(when, context_that_ends_with(lambda: ends.append(1)).run, loop.time)
    gc.collect()
    assert ends == []
    gone = weakref.ref(clock)
    del clock
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of the loop, which nobody closed
        del loop
        gc.collect()
    assert gone() is None
    assert len(ends) == 199


@pytest.mark.gil("each collection there is one of all objects, and no timer is hidden from it")
@pytest.mark.parametrize("order", ["line", "heap"])
def test_timers_without_references_keep_their_callbacks_until_they_run(order: str) -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    ran: list[float] = []

    def call_of(when: float) -> Callable[[], None]:
        def call() -> None:
            ran.append(when)
            assert call.__closure__  # a cycle, which only the collector can free

        return call

    times = times_in(order)
    for when in times:
        loop.call_at(when, call_of(when))
        gc.collect(0)
    gc.collect()
    gc.collect()
    clock.clock = 2_000 * 10**9
    loop.run(RunMode.NOWAIT)
    assert ran == sorted(times)
    loop.close()


class Keeper:
    """An object that keeps a timer which calls it."""

    def __init__(self, loop: Loop, when: float) -> None:
        self.timer = loop.call_later(when, self.call)

    def call(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("order", ["line", "heap"])
def test_an_object_that_keeps_its_timer_is_collected_with_a_dropped_loop(order: str) -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    gone = []

    for when in times_in(order):
        gone.append(weakref.ref(Keeper(loop, when)))
    gc.collect()
    assert None not in [ref() for ref in gone]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of the loop, which nobody closed
        del loop
        gc.collect()
    assert [ref() for ref in gone] == [None] * 199


@pytest.mark.skipif(not COMPILED, reason="uncompiled, the collector sees them all")
def test_a_timer_that_somebody_finds_in_the_heap_keeps_what_it_refers_to() -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    ends: list[int] = []
    for when in times_in("line"):
        loop.call_later(when, context_that_ends_with(lambda: ends.append(1)).run, loop.time)
    lists = [thing for thing in gc.get_referents(loop._timer_queue) if type(thing) is list]
    found = [timer for each in lists for timer in each if timer is not None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of the loop, which nobody closed
        del loop
        gc.collect()
        assert ends == []
        del found
        gc.collect()
        assert ends == []  # those lists are somebody's who may look at them
        del lists
        gc.collect()
    assert len(ends) == 199


def test_a_dropped_loop_that_was_interrupted_in_the_midst_of_its_timers_is_collected() -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    ends: list[int] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    for when in times_in("heap"):
        loop.call_at(when, context_that_ends_with(lambda: ends.append(1)).run, loop.time)
    loop.call_at(0.5, interrupt)
    clock.clock = 2_000 * 10**9
    with pytest.raises(KeyboardInterrupt):
        loop.run(RunMode.NOWAIT)
    assert ends == []
    gone = weakref.ref(clock)
    del clock
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of the loop, which nobody closed
        del loop
        gc.collect()
    assert gone() is None
    assert len(ends) == 199


def lists_of(heap: Any) -> list[list[Any]]:
    """Return the lists of a heap, which are hidden in the compiled build."""
    if COMPILED:
        return [thing for thing in gc.get_referents(heap) if type(thing) is list]
    return [heap._timers, heap._line]


def test_the_heap_of_a_closed_loop_keeps_its_lists() -> None:
    """Tools that look for leaks count new lists."""
    timetable = Timetable()
    for when in (3.0, 1.0, 2.0):
        timetable.at(when)
    heap = timetable.loop._timer_queue
    before = [id(each) for each in lists_of(heap)]
    timetable.loop.close()
    assert [id(each) for each in lists_of(heap)] == before
    assert lists_of(heap) == [[], []]
