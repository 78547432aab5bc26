"""The histograms of a loop: when they begin, and what goes into each."""

from __future__ import annotations

import gc
import threading

import pytest

from tests.core.loop_fakes import SECOND, Inert, ObedientClock, run_forever
from whorl.core import Loop, Probe
from whorl.core.limits import LONG_AWAY_NS, SAMPLED_TURNS, TURNS_BEFORE_HISTOGRAMS

MILLISECOND = 1_000_000


@pytest.fixture
def clock() -> ObedientClock:
    return ObedientClock()


@pytest.fixture
def timed_loop(clock: ObedientClock) -> Loop:
    return Loop(kernel=clock)


def chain(loop: Loop, turns: int, work: object = None) -> None:
    """Keep a loop busy for so many turns, one callback in each."""

    def step(left: int) -> None:
        if callable(work):
            work(left)
        if left > 1:
            loop.call_soon(step, left - 1)

    loop.call_soon(step, turns)


def test_a_short_run_without_a_sleep_makes_no_histograms(timed_loop: Loop) -> None:
    chain(timed_loop, TURNS_BEFORE_HISTOGRAMS - 2)
    timed_loop.run()
    histograms = timed_loop.histograms()
    assert [histogram.count for histogram in histograms] == [0] * 5
    timed_loop.close()


def test_batches_count_from_the_same_turn_as_the_other_figures(timed_loop: Loop) -> None:
    chain(timed_loop, 3 * TURNS_BEFORE_HISTOGRAMS)
    timed_loop.run()
    histograms = timed_loop.histograms()
    assert histograms.batch.buckets() == [(1, histograms.batch.count)]
    assert abs(histograms.batch.count - histograms.away.count) <= 2  # The end of the run is one, too.
    timed_loop.close()


@pytest.mark.parametrize("face", ["machine", "asyncio"])
def test_histograms_begin_with_a_turn(timed_loop: Loop, face: str) -> None:
    chain(timed_loop, 2 * TURNS_BEFORE_HISTOGRAMS)
    if face == "machine":
        timed_loop.run()
    else:
        timed_loop.call_later(1, timed_loop.stop)
        run_forever(timed_loop)
    assert timed_loop.histograms().away.count >= TURNS_BEFORE_HISTOGRAMS
    assert timed_loop.histograms().slept.count == (face == "asyncio")
    timed_loop.close()


def test_the_time_between_polls_is_what_the_loop_was_away(timed_loop: Loop, clock: ObedientClock) -> None:
    def work(left: int) -> None:
        clock.clock += MILLISECOND if left % 2 else 3 * MILLISECOND

    chain(timed_loop, 100, work)
    timed_loop.run()
    away = timed_loop.histograms().away
    assert [count for _, count in away.buckets() if _ > 0] == [50, 50]
    assert (away.total, away.max) == (200 * MILLISECOND, 3 * MILLISECOND)
    assert away.percentile(10) == pytest.approx(MILLISECOND, rel=1 / 32)
    timed_loop.close()


def test_one_long_callback_begins_the_histograms(timed_loop: Loop, clock: ObedientClock) -> None:
    def work(left: int) -> None:
        clock.clock += LONG_AWAY_NS

    chain(timed_loop, 1, work)
    timed_loop.run()
    assert timed_loop.histograms().away.max == LONG_AWAY_NS
    timed_loop.close()


def test_the_end_of_a_run_ends_the_time_away(timed_loop: Loop, clock: ObedientClock) -> None:
    def work(left: int) -> None:
        clock.clock += 5 * SECOND
        timed_loop.stop()

    chain(timed_loop, 1, work)
    run_forever(timed_loop)
    clock.clock += 100 * SECOND  # the loop does not run
    chain(timed_loop, 1, work)
    run_forever(timed_loop)
    assert timed_loop.histograms().away.max == 5 * SECOND
    assert timed_loop.histograms().away.total == 10 * SECOND
    timed_loop.close()


def test_a_sleep_of_another_main_loop_is_not_time_away(timed_loop: Loop, clock: ObedientClock) -> None:
    timed_loop._begin_run()
    timed_loop.call_soon(lambda: setattr(clock, "clock", clock.clock + 2 * SECOND))
    timed_loop._step(False)
    timed_loop._prepare_external_poll()
    clock.clock += 50 * SECOND
    timed_loop._step(False)
    timed_loop._end_run()
    away = timed_loop.histograms().away
    assert (away.max, away.total) == (2 * SECOND, 2 * SECOND)
    timed_loop.close()


def test_each_sleep_is_noted(timed_loop: Loop) -> None:
    for seconds in (1, 2, 4):
        timed_loop.call_later(seconds, list)
    timed_loop.run()
    slept = timed_loop.histograms().slept
    assert (slept.count, slept.total, slept.max) == (3, 4 * SECOND, 2 * SECOND)
    assert timed_loop.metrics().idle_ns == slept.total
    timed_loop.close()


@pytest.mark.parametrize("face", ["machine", "asyncio"])
def test_a_timer_is_late_by_what_a_callback_took(timed_loop: Loop, clock: ObedientClock, face: str) -> None:
    def block() -> None:
        clock.clock += 3 * SECOND // 10

    timed_loop.call_later(0.1, list)
    timed_loop.call_later(0.05, block)
    timed_loop.call_later(9, timed_loop.stop)
    timed_loop.run() if face == "machine" else run_forever(timed_loop)
    late = timed_loop.histograms().late
    assert (late.count, timed_loop.metrics().timers_fired) == (3, 3)
    assert late.max == late.total == 250 * MILLISECOND
    timed_loop.close()


def test_a_timer_of_the_past_is_late_since_it_was_made(timed_loop: Loop, clock: ObedientClock) -> None:
    timed_loop.call_later(1, timed_loop.call_at, 0.0, list)
    timed_loop.call_later(2, timed_loop.call_later, -5, timed_loop.stop)
    run_forever(timed_loop)
    late = timed_loop.histograms().late
    assert late.count == 4
    assert late.max <= SECOND  # and not the time since the clock's zero
    timed_loop.close()


def test_a_batch_counts_its_entries(timed_loop: Loop) -> None:
    timed_loop.call_later(1, list)
    timed_loop.run()
    before = timed_loop.histograms().batch
    for _ in range(7):
        timed_loop.call_soon(list)
    timed_loop.run()
    timed_loop.call_soon(list)
    timed_loop.run()
    batch = timed_loop.histograms().batch - before
    assert batch.buckets() == [(1, 1), (7, 1)]
    assert batch.total == 8
    timed_loop.close()


@pytest.mark.parametrize("face", ["machine", "asyncio"])
@pytest.mark.parametrize("entries", [1, 3])
def test_the_callbacks_of_one_turn_in_61_are_timed(
    timed_loop: Loop, clock: ObedientClock, face: str, entries: int
) -> None:
    def step(left: int) -> None:
        clock.clock += 10_000
        if left > 1 or face == "machine":
            for _ in range(entries - 1):
                timed_loop.call_soon(lambda: setattr(clock, "clock", clock.clock + 20_000))
        if left > 1:
            timed_loop.call_soon(step, left - 1)
        elif face != "machine":
            timed_loop.stop()

    timed_loop.call_soon(step, 5 * SAMPLED_TURNS)
    timed_loop.run() if face == "machine" else run_forever(timed_loop)
    callback = timed_loop.histograms().callback
    # The first of these turns came before the histograms.
    assert callback.count == 4 * entries
    assert callback.total == 4 * (10_000 + (entries - 1) * 20_000)
    timed_loop.close()


def test_a_timed_callback_that_fails_is_reported_as_ever(clock: ObedientClock) -> None:
    reported: list[BaseException] = []

    class Reporting(Loop):
        def _callback_failed(self, entry: object, error: BaseException) -> None:
            reported.append(error)
            clock.clock += SECOND

    loop = Reporting(kernel=clock)
    ran: list[int] = []

    def step(left: int) -> None:
        clock.clock += 10_000
        ran.append(left)
        if left > 1:
            loop.call_soon(step, left - 1)
            loop.call_soon(list)
        raise ValueError(left)

    loop.call_soon(step, 3 * SAMPLED_TURNS)
    loop.run()
    assert len(ran) == len(reported) == 3 * SAMPLED_TURNS
    callback = loop.histograms().callback
    assert callback.max == 10_000  # without the time of the report
    assert callback.count > 2
    loop.close()


def test_callbacks_are_timed_in_debug_mode_and_with_a_probe(timed_loop: Loop, clock: ObedientClock) -> None:
    timed_loop.set_debug(True)
    chain(timed_loop, 3 * SAMPLED_TURNS, lambda left: setattr(clock, "clock", clock.clock + 10_000))
    timed_loop.run()
    timed_loop.set_debug(False)
    timed_loop.set_probe(Probe())
    chain(timed_loop, 3 * SAMPLED_TURNS, lambda left: setattr(clock, "clock", clock.clock + 10_000))
    timed_loop.run()
    callback = timed_loop.histograms().callback
    assert callback.count == 5
    assert callback.total == 50_000
    timed_loop.close()


def test_histograms_may_be_read_by_another_thread(loop: Loop) -> None:
    counts: list[int] = []
    seen_all = threading.Event()

    def look() -> None:
        while not seen_all.is_set():
            counts.append(loop.histograms().away.count)

    thread = threading.Thread(target=look)
    thread.start()
    chain(loop, 5000)
    loop.run()
    seen_all.set()
    thread.join()
    assert counts == sorted(counts)


def test_a_closed_loop_keeps_its_figures(timed_loop: Loop) -> None:
    timed_loop.call_later(1, list)
    timed_loop.run()
    timed_loop.close()
    assert timed_loop.histograms().slept.count == 1
    assert timed_loop.metrics().timers_fired == 1
    assert timed_loop.metrics().handles_by_kind == {}


def test_an_earlier_reading_is_subtracted_from_all_histograms(timed_loop: Loop) -> None:
    chain(timed_loop, 3 * TURNS_BEFORE_HISTOGRAMS)
    timed_loop.run()
    before = timed_loop.histograms()
    timed_loop.call_later(1, list)
    timed_loop.run()
    since = timed_loop.histograms() - before
    assert since.slept.count == 1
    assert since.away == timed_loop.histograms().away - before.away
    assert [histogram.count for histogram in before - before] == [0] * 5
    with pytest.raises(TypeError):
        before - before.away  # type: ignore[operator]
    timed_loop.close()


def test_a_new_loop_does_not_find_the_numbers_of_an_earlier_one() -> None:
    for _ in range(3):
        loop = Loop(kernel=ObedientClock())
        loop.call_later(1, list)
        loop.run()
        histograms = loop.histograms()
        assert (histograms.slept.count, histograms.late.count, histograms.away.count) == (1, 1, 2)
        loop.close()
        del loop
        gc.collect()


def test_handles_are_counted_by_the_name_of_their_class(loop: Loop) -> None:
    handles = [Inert(loop), Inert(loop)]
    assert loop.metrics().handles_by_kind == {"Inert": 2}
    for handle in handles:
        handle.close()
    loop.run()
    assert loop.metrics().handles_by_kind == {}
