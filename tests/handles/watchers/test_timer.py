"""Timer: when it falls due, repeating, stopping, and what the loop makes of it."""

from __future__ import annotations

import contextvars
import errno
import gc
import weakref
from collections.abc import Callable, Iterator

import pytest

from tests.core.loop_fakes import SECOND, ObedientClock, run_turns
from whorl.core import Loop, RunMode
from whorl.handles import Idle, Timer

MILLISECOND = 1_000_000


def run_machine(loop: Loop) -> None:
    """Make one turn in libuv's order."""
    loop.run(RunMode.NOWAIT)


IN_BOTH_ORDERS = pytest.mark.parametrize("run_once", [run_machine, run_turns], ids=["machine", "asyncio"])


@pytest.fixture
def clock() -> ObedientClock:
    return ObedientClock()


@pytest.fixture
def loop(clock: ObedientClock, no_leak: None) -> Iterator[Loop]:
    """Yield a loop in virtual time."""
    loop = Loop(kernel=clock)
    yield loop
    for handle in loop.walk():
        handle.close()
    loop.run(RunMode.NOWAIT)
    loop.close()


def test_a_timer_runs_once_after_its_time(loop: Loop, clock: ObedientClock) -> None:
    began = clock.clock
    seen: list[int] = []
    timer = Timer(loop)
    timer.start(lambda handle: seen.append(clock.clock - began), 3 * SECOND)
    loop.run()
    assert seen == [3 * SECOND]
    assert not timer.is_active()
    assert clock.sleeps == [3 * SECOND]


@IN_BOTH_ORDERS
def test_a_timer_runs_in_both_orders(
    loop: Loop, clock: ObedientClock, run_once: Callable[[Loop], None]
) -> None:
    seen: list[str] = []
    Timer(loop).start(lambda handle: seen.append("due"), SECOND)
    run_once(loop)
    assert seen == []
    clock.clock += SECOND
    run_once(loop)
    assert seen == ["due"]


@IN_BOTH_ORDERS
def test_equal_deadlines_run_in_the_order_of_the_start(
    loop: Loop, clock: ObedientClock, run_once: Callable[[Loop], None]
) -> None:
    seen: list[int] = []
    timers = [Timer(loop) for _ in range(5)]
    for number in (3, 0, 4, 1, 2):
        timers[number].start(lambda handle, number=number: seen.append(number), SECOND)
    timers[3].stop()
    timers[3].start(lambda handle: seen.append(3), SECOND)
    clock.clock += SECOND
    run_once(loop)
    assert seen == [0, 4, 1, 2, 3]


def test_a_timer_counts_from_the_loops_time(loop: Loop, clock: ObedientClock) -> None:
    clock.clock += SECOND // 2  # the loop has not seen this time pass
    timer = Timer(loop)
    timer.start(lambda handle: None, SECOND)
    assert timer.due_in_ns() == SECOND
    loop.update_time()
    assert timer.due_in_ns() == SECOND // 2


def test_a_repeating_timer_is_armed_again_before_its_callback_and_from_the_loops_time(
    loop: Loop, clock: ObedientClock
) -> None:
    """The next sleep, too, is counted from the loop's time: what a callback takes is added."""
    began = clock.clock
    seen: list[tuple[int, int, bool]] = []

    def tick(timer: Timer) -> None:
        seen.append((loop.now() - began, timer.due_in_ns(), timer.is_active()))
        clock.clock += SECOND // 4  # a callback that takes its time
        if len(seen) == 3:
            timer.stop()

    Timer(loop).start(tick, 5 * SECOND, SECOND)
    loop.run()
    assert seen == [(count * SECOND // 4, SECOND, True) for count in (20, 25, 30)]


def test_a_timer_that_missed_many_turns_runs_once(loop: Loop, clock: ObedientClock) -> None:
    seen: list[int] = []
    timer = Timer(loop)
    timer.start(lambda handle: seen.append(loop.now()), SECOND, SECOND)
    clock.clock += 100 * SECOND
    loop.run(RunMode.NOWAIT)
    loop.run(RunMode.NOWAIT)
    assert len(seen) == 1
    assert timer.due_in_ns() == SECOND


@IN_BOTH_ORDERS
def test_a_timer_stopped_while_it_is_due_does_not_run(
    loop: Loop, clock: ObedientClock, run_once: Callable[[Loop], None]
) -> None:
    seen: list[str] = []
    first, second, third = Timer(loop), Timer(loop), Timer(loop)
    first.start(lambda handle: (seen.append("first"), second.stop(), third.close()), SECOND)
    second.start(lambda handle: seen.append("second"), SECOND)
    third.start(lambda handle: seen.append("third"), SECOND)
    clock.clock += SECOND
    run_once(loop)
    run_once(loop)
    assert seen == ["first"]


@IN_BOTH_ORDERS
def test_a_timer_restarted_while_it_is_due_waits_anew(
    loop: Loop, clock: ObedientClock, run_once: Callable[[Loop], None]
) -> None:
    seen: list[str] = []
    first, second = Timer(loop), Timer(loop)
    first.start(lambda handle: second.start(lambda handle: seen.append("new"), SECOND), SECOND)
    second.start(lambda handle: seen.append("old"), SECOND)
    clock.clock += SECOND
    run_once(loop)
    run_once(loop)
    assert seen == []
    clock.clock += SECOND
    run_once(loop)
    assert seen == ["new"]


@pytest.mark.parametrize("timeout", [0, 3])
def test_a_timer_stopped_and_started_while_it_is_due_runs_once_for_each_start(
    loop: Loop, clock: ObedientClock, timeout: int
) -> None:
    ran: list[str] = []

    def disturb(timer: Timer) -> None:
        ran.append("disturb")
        second.stop()
        second.start(lambda timer: ran.append("second"), timeout * SECOND)
        raise ArithmeticError

    first, second = Timer(loop), Timer(loop)
    first.start(disturb, SECOND)
    second.start(lambda timer: ran.append("too early"), SECOND)
    with pytest.raises(ArithmeticError):
        loop.run()
    assert ran == ["disturb"]
    loop.run()
    assert ran == ["disturb", "second"]


def test_a_timer_that_was_dropped_with_its_callback_is_freed_when_it_is_closed(loop: Loop) -> None:
    timers = [Timer(loop) for _ in range(3)]
    timers[0].start(lambda timer: None, 0)
    timers[1].start(lambda timer: None, 3600 * SECOND)
    loop.run(RunMode.NOWAIT)
    gone = [weakref.ref(timer) for timer in timers]
    for timer in timers:
        timer.close()
    gc.disable()
    try:
        loop.run()
        del timer
        timers.clear()
        assert [reference() for reference in gone] == [None] * 3
    finally:
        gc.enable()


def test_times_beyond_64_bits_are_as_long_as_can_be(loop: Loop) -> None:
    timer = Timer(loop)
    timer.start(lambda timer: None, 1 << 80, 1 << 90)
    assert timer.repeat_ns == (1 << 63) - 1
    timer.repeat_ns = 1 << 64
    assert timer.repeat_ns == (1 << 63) - 1
    assert timer.due_in_ns() > 1 << 62
    for value in (-1, -(1 << 80)):
        with pytest.raises(ValueError, match="negative"):
            timer.start(lambda timer: None, value)
    timer.close()


@IN_BOTH_ORDERS
def test_a_timer_started_for_now_in_a_timer_waits_for_the_next_turn(
    loop: Loop, run_once: Callable[[Loop], None]
) -> None:
    seen: list[int] = []

    def again(timer: Timer) -> None:
        seen.append(loop.metrics().turns)
        timer.start(again, 0)

    Timer(loop).start(again, 0)
    for _ in range(3):
        run_once(loop)
    assert seen == [1, 2, 3]


def test_starting_again_replaces_what_was_started(loop: Loop, clock: ObedientClock) -> None:
    seen: list[str] = []
    timer = Timer(loop)
    timer.start(lambda handle: seen.append("old"), SECOND, SECOND)
    timer.start(lambda handle: seen.append("new"), 2 * SECOND)
    loop.run()
    assert seen == ["new"]
    assert clock.sleeps == [2 * SECOND]
    assert timer.repeat_ns == 0


def test_again_needs_a_timer_that_was_started(loop: Loop) -> None:
    timer = Timer(loop)
    with pytest.raises(OSError, match="never been started") as caught:
        timer.again()
    assert caught.value.errno == errno.EINVAL


def test_again_starts_a_repeating_timer_with_its_repeat_time(loop: Loop, clock: ObedientClock) -> None:
    timer = Timer(loop)
    timer.start(lambda handle: handle.stop(), 10 * SECOND, SECOND)
    timer.again()
    assert timer.due_in_ns() == SECOND
    timer.stop()
    timer.again()
    assert timer.is_active()
    loop.run()
    assert clock.sleeps == [SECOND]


def test_again_leaves_a_timer_alone_that_does_not_repeat(loop: Loop) -> None:
    timer = Timer(loop)
    timer.start(lambda handle: None, 10 * SECOND)
    timer.again()
    assert timer.due_in_ns() == 10 * SECOND
    timer.stop()
    timer.again()
    assert not timer.is_active()


def test_a_repeat_time_set_in_the_callback_counts_from_the_next_start_on(
    loop: Loop, clock: ObedientClock
) -> None:
    def slow_down(timer: Timer) -> None:
        timer.repeat_ns = 7 * SECOND
        if len(clock.sleeps) == 3:
            timer.stop()

    Timer(loop).start(slow_down, SECOND, SECOND)
    loop.run()
    assert clock.sleeps == [SECOND, SECOND, 7 * SECOND]


def test_a_repeat_time_set_in_the_callback_of_a_single_timer_does_not_revive_it(loop: Loop) -> None:
    timer = Timer(loop)

    def repeat(handle: Timer) -> None:
        handle.repeat_ns = SECOND

    timer.start(repeat, 0)
    loop.run()
    assert not timer.is_active()
    timer.again()
    assert timer.due_in_ns() == SECOND


def test_due_in_ns_is_zero_for_a_timer_that_is_stopped_or_due(loop: Loop, clock: ObedientClock) -> None:
    timer = Timer(loop)
    assert timer.due_in_ns() == 0
    timer.start(lambda handle: None, SECOND)
    clock.clock += 5 * SECOND
    loop.update_time()
    assert timer.due_in_ns() == 0
    timer.stop()
    assert timer.due_in_ns() == 0


def test_a_stopped_timer_leaves_nothing_to_wait_for(loop: Loop, clock: ObedientClock) -> None:
    timer = Timer(loop)
    timer.start(lambda handle: None, SECOND)
    timer.stop()
    timer.stop()
    assert not loop.alive()
    assert not loop.run()
    assert clock.sleeps == []


def test_an_unreferenced_timer_does_not_keep_the_loop_alive(loop: Loop) -> None:
    timer = Timer(loop)
    timer.start(lambda handle: None, SECOND, SECOND)
    assert loop.alive()
    timer.unref()
    assert not loop.alive()
    assert not loop.run()


def test_an_unreferenced_timer_runs_while_something_else_keeps_the_loop_alive(
    loop: Loop, clock: ObedientClock
) -> None:
    seen: list[str] = []
    timer = Timer(loop)
    timer.start(lambda handle: seen.append("unreferenced"), SECOND)
    timer.unref()
    Timer(loop).start(lambda handle: seen.append("referenced"), 2 * SECOND)
    loop.run()
    assert seen == ["unreferenced", "referenced"]


def test_timers_of_handles_and_of_call_at_share_one_order(loop: Loop) -> None:
    seen: list[str] = []
    Timer(loop).start(lambda handle: seen.append("1 s"), SECOND)
    loop.call_at(loop.time() + 0.5, seen.append, "0.5 s")
    Timer(loop).start(lambda handle: seen.append("0.2 s"), SECOND // 5)
    loop.run()
    assert seen == ["0.2 s", "0.5 s", "1 s"]


def test_a_timer_beyond_all_time_waits_for_ever(loop: Loop) -> None:
    timer = Timer(loop)
    timer.start(lambda handle: None, 1 << 80)
    assert loop.backend_timeout() == -1
    assert loop.alive()
    timer.stop()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_keeps_the_other_timers_and_the_repeat(
    loop: Loop, clock: ObedientClock, error: type[BaseException]
) -> None:
    seen: list[int] = []

    def fail(timer: Timer) -> None:
        raise error("on purpose")

    timers = [Timer(loop) for _ in range(4)]
    for number, timer in enumerate(timers):
        act = fail if number == 1 else lambda handle, number=number: seen.append(number)
        timer.start(act, SECOND, SECOND)
    clock.clock += SECOND
    with pytest.raises(error, match="on purpose"):
        loop.run(RunMode.NOWAIT)
    assert seen == [0]
    assert timers[1].is_active()
    loop.run(RunMode.NOWAIT)
    assert seen == [0, 2, 3]


def test_many_timers_started_and_stopped_do_not_pile_up(loop: Loop) -> None:
    timers = [Timer(loop) for _ in range(10)]
    for _ in range(1000):
        for timer in timers:
            timer.start(print, SECOND)
    assert loop.metrics().timers < 500
    assert loop.metrics().active_handles == 10


def test_the_callback_runs_in_the_context_of_the_start(loop: Loop) -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
    seen: list[int] = []

    def count(timer: Timer) -> None:
        seen.append(variable.get())
        variable.set(variable.get() + 1)
        if len(seen) == 3:
            timer.stop()

    timer = Timer(loop)
    contextvars.copy_context().run(lambda: (variable.set(5), timer.start(count, 0, SECOND)))
    loop.run()
    assert seen == [5, 6, 7]


def test_closing_a_timer_stops_it(loop: Loop, clock: ObedientClock) -> None:
    timer = Timer(loop)
    timer.start(print, SECOND, SECOND)
    timer.close()
    loop.run()
    assert clock.sleeps == []
    with pytest.raises(OSError, match="closed"):
        timer.start(print, 0)
    with pytest.raises(OSError, match="closed"):
        timer.again()


@pytest.mark.parametrize(("value", "error"), [(-1, ValueError), (1.5, TypeError), (None, TypeError)])
def test_timer_refuses_an_invalid_number_of_nanoseconds(
    loop: Loop, value: object, error: type[Exception]
) -> None:
    timer = Timer(loop)
    with pytest.raises(error):
        timer.start(print, value)  # type: ignore[arg-type]
    with pytest.raises(error):
        timer.start(print, 0, value)  # type: ignore[arg-type]
    with pytest.raises(error):
        timer.repeat_ns = value  # type: ignore[assignment]
    with pytest.raises(TypeError):
        timer.start(None, 0)  # type: ignore[arg-type]
    assert not timer.is_active()


def test_a_timer_goes_on_beside_an_idle_handle(loop: Loop, clock: ObedientClock) -> None:
    idle = Idle(loop)

    def pass_time(handle: Idle) -> None:
        clock.clock += SECOND // 10

    idle.start(pass_time)
    seen: list[int] = []
    Timer(loop).start(lambda handle: (seen.append(loop.metrics().turns), idle.close()), SECOND)
    loop.run()
    assert seen == [10]
