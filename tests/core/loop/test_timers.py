"""Timers: their order, cancelling, the heap, and numbers at the limits."""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import math
import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import whorl.handles
from tests.core.loop_fakes import SECOND, ObedientClock, run_turns
from whorl.core import Loop, RunMode
from whorl.core.limits import NEVER_NS, SWEEP_FRACTION, SWEEP_MIN_CANCELLED
from whorl.core.timers.timed_callback import deadline_of

TIMERS = ("core/timers/timed_callback.py", "core/timers/heap.py", "handles/watchers/timer.py")
KEPT: contextvars.ContextVar[object] = contextvars.ContextVar("kept")
NAN = float("nan")
INFINITY = float("inf")

# Times in seconds: ordinary ones, ones that differ by less than a nanosecond, and extreme ones.
AROUND_A_TIE = [1002.5 + step * 1e-10 for step in range(-12, 12)]
EXTREME = [
    NAN, -NAN, INFINITY, -INFINITY, 0.0, -0.0, -1.0, 5e-324, 1e300, -1e300, sys.float_info.max,
    2.0**63 / 1e9, -(2.0**63) / 1e9, math.nextafter(2.0**63 / 1e9, 0), math.nextafter(-(2.0**63) / 1e9, 0),
    0, 1001, -(10**30), 10**30,
]  # fmt: skip
TIMES = st.one_of(
    st.floats(999, 1006),
    st.sampled_from(AROUND_A_TIE),
    st.sampled_from(EXTREME),
    st.floats(allow_nan=True, allow_infinity=True),
    st.integers(-(2**70), 2**70),
)


def order(when: float) -> tuple[int, float]:
    """Return the sort key of a time: NaN before all others."""
    return (0, 0.0) if when != when else (1, float(when))


def is_due(when: float, now_ns: int) -> bool:
    """Return whether a time has been reached."""
    return when != when or (float(when) < NEVER_NS / 1e9 and float(when) * 1e9 <= now_ns)


@pytest.mark.slow
@given(st.lists(st.tuples(TIMES, st.booleans()), max_size=60))
@settings(max_examples=300, deadline=None)
def test_timers_run_in_the_order_of_a_sorted_list(scheduled: list[tuple[float, bool]]) -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    ran: list[int] = []
    timers = [loop.call_at(when, ran.append, number) for number, (when, _) in enumerate(scheduled)]
    waiting = []
    for number, (when, is_cancelled) in enumerate(scheduled):
        assert timers[number].when() is when
        if is_cancelled:
            timers[number].cancel()
        else:
            waiting.append((order(when), number, when))
    waiting.sort()
    expected: list[int] = []
    for _ in range(8):
        expected += [number for _, number, when in waiting if is_due(when, clock.clock)]
        waiting = [entry for entry in waiting if not is_due(entry[-1], clock.clock)]
        loop.run(RunMode.NOWAIT)
        assert ran == expected
        clock.clock += SECOND
    loop.close()


@given(st.lists(TIMES, min_size=2, max_size=30))
@settings(max_examples=200, deadline=None)
def test_a_turn_of_asyncio_has_the_same_order(times: list[float]) -> None:
    ran: list[int] = []
    for mode in ("asyncio", "machine"):
        clock = ObedientClock()
        loop = Loop(kernel=clock)
        for number, when in enumerate(times):
            loop.call_at(when, ran.append, number)
        clock.clock += 3 * SECOND
        if mode == "asyncio":
            run_turns(loop)
        else:
            loop.run(RunMode.NOWAIT)
        loop.close()
    half = len(ran) // 2
    assert ran[:half] == ran[half:]


def test_equal_deadlines_run_in_the_order_of_scheduling(loop: Loop) -> None:
    when = loop.time() + 0.001
    ran: list[int] = []
    for number in range(500):
        loop.call_at(when, ran.append, number)
    loop.run()
    assert ran == list(range(500))


def test_deadlines_less_than_a_nanosecond_apart_keep_their_order() -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    ran: list[float] = []
    times = sorted({1002.5 + step * 2e-10 for step in range(-10, 10)})
    assert len(times) > 10
    assert len({deadline_of(when) for when in times}) < len(times)
    for when in reversed(times):
        loop.call_at(when, ran.append, when)
    clock.clock += 5 * SECOND
    loop.run()
    assert ran == times
    loop.close()


@given(st.one_of(st.floats(allow_nan=False), st.integers(-(2**80), 2**80)))
def test_a_deadline_is_the_first_nanosecond_not_before_a_time(when: float) -> None:
    deadline = deadline_of(when)
    if float(when) >= NEVER_NS / 1e9:
        assert deadline == NEVER_NS
    elif float(when) <= -NEVER_NS / 1e9:
        assert deadline == -NEVER_NS
    else:
        assert deadline == math.ceil(float(when) * 1e9)


@pytest.mark.parametrize("when", [Decimal("1.5"), Fraction(3, 2), True, 0])
def test_any_number_is_a_time(loop: Loop, when: float) -> None:
    ran: list[int] = []
    timer = loop.call_at(when, ran.append, 1)
    assert timer.when() is when
    run_turns(loop)
    assert ran == [1]


class Clocklike:
    """An object that converts to a float, and has no other method."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __float__(self) -> float:
        return self.seconds


def test_times_that_cannot_be_compared_are_ordered_as_numbers(loop: Loop) -> None:
    ran: list[int] = []
    for number in range(20, 0, -1):
        loop.call_at(Clocklike(number * 1e-11), ran.append, number)
    run_turns(loop)
    assert ran == list(range(1, 21))


@pytest.mark.parametrize("when", ["soon", "1", object(), [], b"1", 1j])
def test_call_at_and_call_later_refuse_a_non_number(loop: Loop, when: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        loop.call_at(when, list)
    with pytest.raises(TypeError):
        loop.call_later(when, list)
    assert not loop.alive()


def test_call_at_and_call_later_refuse_none(loop: Loop) -> None:
    with pytest.raises(TypeError, match="when cannot be None"):
        loop.call_at(None, list)
    with pytest.raises(TypeError, match="delay must not be None"):
        loop.call_later(None, list)


@pytest.mark.parametrize("when", [10**400, -(10**400)])
def test_integers_beyond_floats_are_refused(loop: Loop, when: int) -> None:
    with pytest.raises(OverflowError):
        loop.call_at(when, list)
    with pytest.raises(OverflowError):
        loop.call_later(when, list)
    assert not loop.alive()


def test_infinity_never_comes_and_keeps_the_loop_alive() -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    ran: list[str] = []
    never = loop.call_later(INFINITY, ran.append, "never")
    far = loop.call_at(1e300, ran.append, "never")
    loop.call_later(3600, loop.stop)
    assert loop.run() is True
    clock.clock = NEVER_NS - 1
    run_turns(loop)
    assert ran == []
    assert never.when() == INFINITY
    assert far.when() == 1e300
    loop.close()


@pytest.mark.parametrize("delay", [-1, -INFINITY, NAN, -1e300, 0, 5e-324])
@pytest.mark.parametrize("mode", [RunMode.DEFAULT, RunMode.ONCE])
def test_timers_in_the_past_are_due_at_once(delay: float, mode: RunMode) -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    ran: list[int] = []
    loop.call_later(delay, ran.append, 1)
    loop.run(mode)
    assert ran == [1]
    assert sum(clock.sleeps) <= 1
    loop.close()


@pytest.mark.parametrize("clock_ns", [0, 1, 2**62, NEVER_NS - 1, NEVER_NS])
@pytest.mark.parametrize("when", EXTREME)
def test_extreme_clocks_and_deadlines_do_not_overflow(clock_ns: int, when: float) -> None:
    from whorl.core import Probe

    clock = ObedientClock()
    clock.clock = clock_ns
    loop = Loop(kernel=clock)
    loop.set_probe(Probe())
    loop.call_at(when, list)
    loop.call_at(clock_ns / 1e9, list)
    assert -1 <= loop.backend_timeout() <= 24 * 3600 * SECOND
    loop.run(RunMode.NOWAIT)
    run_turns(loop)
    loop.close()


def test_a_timer_never_runs_early(loop: Loop) -> None:
    early = []

    def check(deadline: float) -> None:
        late = time.monotonic() - deadline
        if late < 0:
            early.append(late)

    for number in range(50):
        deadline = loop.time() + number * 0.0007
        loop.call_at(deadline, check, deadline)
    loop.run()
    assert early == []


def test_call_later_counts_from_now_not_from_the_start_of_the_turn() -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    ran = []

    def work() -> None:
        clock.clock += 10 * SECOND
        loop.call_later(5, lambda: ran.append(clock.clock))

    loop.call_soon(work)
    loop.run()
    assert ran == [1015 * SECOND]
    loop.close()


def test_a_replaced_clock_moves_the_scheduler() -> None:
    class Shifted(Loop):
        shift = 0.0

        def __init__(self) -> None:
            super().__init__(kernel=ObedientClock())
            self._time_replaced = True

        def time(self) -> float:
            return super().time() + self.shift

    loop = Shifted()
    ran: list[int] = []
    timer = loop.call_later(100, ran.append, 1)
    assert timer.when() == 1100
    run_turns(loop)
    assert ran == []
    loop.shift = 100
    run_turns(loop)
    assert ran == [1]
    loop.close()


# Cancelling.


def test_cancelling_again_and_cancelling_late_do_nothing() -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    ran: list[int] = []
    first = loop.call_later(1, ran.append, 1)
    second = loop.call_later(2, ran.append, 2)
    loop.run(RunMode.ONCE)
    for _ in range(3):
        first.cancel()
        second.cancel()
        second.cancel()
    assert not loop.alive()
    assert loop.run() is False
    assert ran == [1]
    loop.close()


def test_a_timer_may_cancel_another_that_is_due_with_it() -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    ran: list[int] = []
    loop.call_later(1, lambda: second.cancel())
    second = loop.call_later(1, ran.append, 2)
    loop.call_later(1, ran.append, 3)
    loop.run()
    assert ran == [3]
    loop.close()


def test_cancelled_timers_do_not_pile_up(loop: Loop) -> None:
    kept = [loop.call_later(3600 + number, list) for number in range(50)]
    most = 0
    for _ in range(20000):
        loop.call_later(1800, list).cancel()
        most = max(most, loop.metrics().timers)
    bound = max(SWEEP_MIN_CANCELLED, SWEEP_FRACTION * len(kept)) + len(kept) + 1
    assert most <= bound
    for timer in kept:
        timer.cancel()
    assert not loop.alive()
    assert loop.metrics().timers <= bound


@pytest.mark.parametrize("in_order", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_timers_that_come_and_go_for_long_keep_their_order(seed: int, in_order: float) -> None:
    chance = random.Random(seed)
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    ran: list[int] = []
    waiting: dict[int, tuple[int, Any]] = {}
    latest = number = 0
    for _ in range(400):
        for _ in range(chance.randrange(20)):
            number += 1
            latest = max(latest, clock.clock) + chance.randrange(2)
            due = latest if chance.random() < in_order else clock.clock + chance.randrange(60)
            waiting[number] = due, loop.call_at(due / 1e9, ran.append, number)
        for cancelled in chance.sample(sorted(waiting), min(len(waiting), chance.randrange(6))):
            waiting.pop(cancelled)[1].cancel()
        clock.clock += chance.randrange(25)
        due_now = sorted((due, each) for each, (due, _) in waiting.items() if due <= clock.clock)
        ran.clear()
        loop.run(RunMode.NOWAIT)
        assert ran == [each for _, each in due_now]
        for each in ran:
            del waiting[each]
        assert len(waiting) <= loop.metrics().timers <= 2 * len(waiting) + SWEEP_MIN_CANCELLED + 1
    for _, timer in waiting.values():
        timer.cancel()
    assert not loop.alive()
    loop.close()


def test_the_places_of_timers_that_ran_are_given_back() -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    tracemalloc.start()
    try:
        for number in range(5_000):
            loop.call_at(2003 + number, list)
            clock.clock = (2000 + number) * SECOND
            loop.run(RunMode.NOWAIT)
            if number == 1000:
                before = tracemalloc.get_traced_memory()[0]
        assert tracemalloc.get_traced_memory()[0] < before + 16_000  # 4,000 places are twice that
    finally:
        tracemalloc.stop()
    assert loop.metrics().timers == 3
    loop.close()


@pytest.mark.parametrize("size", [0, 1, 2, 3, 100, 101, 102, 1000])
def test_a_sweep_keeps_the_order_of_those_that_stay(size: int) -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    ran: list[int] = []
    keep = set(itertools.islice(itertools.count(0, 7), size))
    timers = [
        loop.call_later((number * 7919) % 1000 + 1, ran.append, number) for number in range(7 * size + 300)
    ]
    for number, timer in enumerate(timers):
        if number not in keep:
            timer.cancel()
    loop.run()
    assert ran == sorted(keep, key=lambda number: ((number * 7919) % 1000, number))
    assert loop.metrics().timers <= SWEEP_MIN_CANCELLED
    loop.close()


@pytest.mark.slow
def test_cancelling_takes_the_same_time_however_many_timers_there_are() -> None:
    def seconds_for(count: int) -> float:
        loop = Loop()
        timers = [loop.call_later(1000 + number, list) for number in range(count)]
        began = time.process_time()
        for timer in timers:
            timer.cancel()
        took = time.process_time() - began
        loop.close()
        return took

    small, large = 2_000, 64_000
    best = min(
        (seconds_for(large) / large) / max(seconds_for(small) / small, 1e-9) for _ in range(5)
    )  # an O(n) cancel would make this 32
    assert best < 8


class Interrupted(KeyboardInterrupt):
    """An exception of a signal handler."""


@contextlib.contextmanager
def interrupted(steps: int) -> Iterator[None]:
    """Interrupt what deals with timers after so many steps."""
    left = steps

    def interrupt(frame: Any, event: str, argument: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(TIMERS):
            return None
        left -= 1
        if not left:
            sys.settrace(None)
            raise Interrupted
        return interrupt

    tracing = sys.gettrace()
    sys.settrace(interrupt)
    try:
        with contextlib.suppress(Interrupted):
            yield
    finally:
        sys.settrace(tracing)


@pytest.mark.parametrize("steps", [*range(1, 60, 5), *range(60, 3000, 61)])
def test_an_interrupt_while_timers_are_collected_loses_none(steps: int) -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    ran: list[int] = []
    in_order = [loop.call_later(number // 2, ran.append, number) for number in range(1, 40)]
    for number in range(60, 39, -1):
        loop.call_later(number // 4, ran.append, number)
    handles = [whorl.handles.Timer(loop) for _ in range(4)]
    for number, handle in enumerate(handles):
        handle.start(lambda handle: ran.append(100), number * SECOND)
    in_order.pop(7).cancel()
    clock.clock += 12 * SECOND
    with interrupted(steps):
        loop.run(RunMode.NOWAIT)
    loop.run()
    assert sorted(ran) == [number for number in range(1, 61) if number != 8] + [100] * 4
    assert loop.metrics().timers == 0
    for handle in handles:
        handle.close()
    loop.run()
    loop.close()


@pytest.mark.parametrize("steps", range(1, 3000, 61))
def test_an_interrupt_while_timers_are_scheduled_loses_none(steps: int) -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    ran: list[int] = []
    scheduled: list[int] = []
    with interrupted(steps):
        for number in range(60):
            loop.call_later(number * 7 % 60, ran.append, number)
            scheduled.append(number)
    loop.run()
    assert len(ran) == len(set(ran))
    assert set(scheduled) <= set(ran) <= {*scheduled, len(scheduled)}
    assert [number * 7 % 60 for number in ran] == sorted(number * 7 % 60 for number in ran)
    assert loop.metrics().timers == 0
    loop.close()


# As asyncio's TimerHandle.


def test_timers_compare_by_their_time(loop: Loop) -> None:
    early, late = loop.call_at(1, list), loop.call_at(2, list)
    same = loop.call_at(1, list)
    assert early < late
    assert late > early
    assert early <= same
    assert early >= same
    assert early == same
    assert early != late
    assert hash(early) == hash(same)
    assert early.__lt__(1) is NotImplemented
    assert early.__eq__(1) is NotImplemented
    same.cancel()
    assert early != same


def test_a_timer_says_what_it_is(loop: Loop) -> None:
    timer = loop.call_at(1, list)
    assert "TimedCallback" in repr(timer)
    assert not timer.cancelled()
    timer.cancel()
    assert timer.cancelled()
    assert "cancelled" in repr(timer)
    assert timer.when() == 1


def test_a_time_is_asked_for_its_value_once_before_it_is_scheduled(loop: Loop) -> None:
    class Changing:
        """A time that schedules timers of its own, and fails, when it is asked often enough."""

        asked = 0

        def __float__(self) -> float:
            Changing.asked += 1
            if Changing.asked > 500:
                raise ValueError
            if Changing.asked % 3 == 0:
                loop.call_at(2.0, ran.append, "inner")
            return 2.0

    ran: list[str] = []
    made = 0
    for _ in range(600):
        with contextlib.suppress(ValueError):
            loop.call_at(Changing(), ran.append, "outer")  # type: ignore[arg-type]
            made += 1
    loop.run()
    assert ran.count("outer") == made == 500
    assert ran.count("inner") == 500 // 3
    assert loop.metrics().timers == 0


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


def test_a_cancelled_timer_whose_end_schedules_another_loses_none(loop: Loop) -> None:
    ran: list[str] = []
    first = loop.call_at(1, list)
    second = loop.call_at(2, list, context=context_that_ends_with(lambda: loop.call_at(4, ran.append, "new")))
    last = loop.call_at(3, list)
    first.cancel()
    second.cancel()
    del first, second
    last.cancel()
    del last
    loop.run()
    assert ran == ["new"]
    assert loop.metrics().timers == 0


def test_a_timer_that_is_scheduled_while_the_next_is_looked_for_is_called_once(loop: Loop) -> None:
    ran: list[str] = []
    loop.call_at(5, ran.append, "last")
    gone = loop.call_at(1, list, context=context_that_ends_with(lambda: loop.call_at(1.5, ran.append, "new")))
    loop.call_at(2, ran.append, "next")
    gone.cancel()
    del gone
    loop.run()
    assert sorted(ran) == ["last", "new", "next"]
    assert loop.metrics().timers == 0
