"""The histograms that a loop keeps: their buckets, and what a reading of them answers."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from tests.core.loop_fakes import ObedientClock
from whorl.core import Histogram, Loop
from whorl.core.figures import Figures
from whorl.core.limits import LONG_AWAY_NS
from whorl.core.metrics import _upper_bound
from whorl.core.states import AWAY, KINDS, PLACES, SLEPT


def histogram_of(*numbers: int) -> Histogram:
    counts: dict[int, int] = {}
    for number in numbers:
        place = next(place for place in range(PLACES) if number <= _upper_bound(place))
        counts[place] = counts.get(place, 0) + 1
    return Histogram(sum(numbers), max(numbers, default=0), counts)


def test_figures_without_histograms_answer_with_empty_ones() -> None:
    figures = Figures()
    assert [figures.histogram(kind) for kind in range(KINDS)] == [(0, 0, {})] * KINDS


@pytest.mark.parametrize("kind", [-1, KINDS, 1 << 20])
def test_figures_refuse_the_number_of_a_histogram_that_does_not_exist(kind: int) -> None:
    with pytest.raises(ValueError, match="histograms"):
        Figures().histogram(kind)


def test_jobs_are_counted_in_three_steps() -> None:
    figures = Figures()
    figures.count_jobs(3, 0, 0)
    figures.count_jobs(-1, 2, 1)
    totals = figures.totals()
    assert (totals["jobs_submitted"], totals["jobs_begun"], totals["jobs_ended"]) == (2, 2, 1)


def test_buckets_leave_no_gap_and_differ_by_a_sixteenth_at_most() -> None:
    bounds = [_upper_bound(place) for place in range(PLACES - 1)]
    assert bounds == sorted(set(bounds))
    assert bounds[:40] == [*range(32), *range(33, 48, 2)]
    assert bounds[-1] == (31 << 35) - 1  # The last bucket has no bound.
    for lower, upper in itertools.pairwise(bounds[16:]):
        assert upper - (lower + 1) <= (lower + 1) / 16


def test_an_empty_histogram_has_no_percentile() -> None:
    empty = histogram_of()
    assert (empty.count, empty.total, empty.max, empty.mean) == (0, 0, 0, 0.0)
    assert empty.percentile(50) is None
    assert empty.buckets() == []


def test_percentiles_are_a_thirty_second_off_at_most() -> None:
    dice = random.Random(1)
    numbers = sorted(int(2 ** dice.uniform(0, 39)) for _ in range(5000))
    histogram = histogram_of(*numbers)
    for percent in (0, 1, 10, 50, 90, 99, 99.9, 100):
        exact = numbers[max(0, math.ceil(len(numbers) * percent / 100) - 1)]
        answer = histogram.percentile(percent)
        assert answer is not None
        assert abs(answer - exact) <= exact / 32
    assert histogram.percentile(100) == histogram.max == numbers[-1]


@pytest.mark.parametrize("percent", [-0.1, 100.1, float("nan")])
def test_a_percentile_is_from_0_to_100(percent: float) -> None:
    with pytest.raises(ValueError, match="0 to 100"):
        histogram_of(1).percentile(percent)


def test_histograms_are_added_and_subtracted() -> None:
    earlier, later = histogram_of(3, 1000), histogram_of(3, 1000, 5, 70)
    assert later - earlier == Histogram(75, 71, (histogram_of(5, 70) - histogram_of())._counts)
    assert earlier + histogram_of(5, 70) == later
    assert hash(earlier + histogram_of(5, 70)) == hash(later)
    assert (later - later).percentile(50) is None
    assert later != 1


def test_the_representation_of_a_histogram_shows_its_percentiles() -> None:
    assert repr(histogram_of(1, 2, 3)) == "<Histogram count=3 mean=2 p50=2 p99=3 max=3>"
    assert repr(histogram_of()) == "<Histogram empty>"


def test_numbers_of_a_loop_fall_into_the_buckets_that_readings_show() -> None:
    clock = ObedientClock()
    loop = Loop(kernel=clock)
    dice = random.Random(2)
    spans = [LONG_AWAY_NS, *(int(2 ** dice.uniform(0, 42)) for _ in range(300))]

    def work(rest: list[int]) -> None:
        clock.clock += rest[0]
        if rest[1:]:
            loop.call_soon(work, rest[1:])

    loop.call_soon(work, spans)
    loop.run()
    away = loop.histograms().away
    total, most, counts = loop._figures.histogram(AWAY)
    assert (total, most) == (sum(spans), max(spans)) == (away.total, away.max)
    shown = histogram_of(*spans)._counts
    assert {place: count for place, count in counts.items() if place} == shown
    assert loop.histograms().slept.count == loop._figures.histogram(SLEPT)[0] == 0
    loop.close()
