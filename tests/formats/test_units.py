"""Numbers with their units."""

from __future__ import annotations

import pytest

from whorl.formats import units


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0 s"),
        (5e-8, "50 ns"),
        (1.5e-6, "1.5 µs"),
        (1.02e-4, "102 µs"),
        (0.0009996, "1 ms"),
        (0.00999, "10 ms"),
        (0.999499, "999 ms"),
        (2.55, "2.5 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (96, "1 min 36 s"),
        (119.7, "2 min 0 s"),
        (7260, "2 h 1 min"),
        (864_000, "10 days"),
    ],
)
def test_duration_has_two_or_three_digits(seconds: float | None, text: str) -> None:
    assert units.duration(seconds) == text


def test_duration_may_be_in_nanoseconds() -> None:
    assert units.duration_ns(1_300_000) == "1.3 ms"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.25, "0.2"),
        (9.97, "10"),
        (999, "999"),
        (999.6, "1 k"),
        (12_345, "12 k"),
        (3.2e9, "3.2 G"),
    ],
)
def test_number_is_short(value: float, text: str) -> None:
    assert units.number(value) == text


def test_sizes_have_units() -> None:
    assert [units.size(value) for value in (0, 1500, 12.1e6)] == ["0 B", "1.5 kB", "12 MB"]


def test_counts_have_a_plural() -> None:
    assert [units.count(number, "task") for number in (0, 1, 1000)] == ["0 tasks", "1 task", "1,000 tasks"]
