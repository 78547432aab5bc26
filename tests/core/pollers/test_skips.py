"""Tests of the polls that a busy loop may skip."""

from __future__ import annotations

from whorl.core.limits import EMPTY_POLLS_BEFORE_SKIP, TURNS_WITHOUT_POLL
from whorl.core.pollers.skips import PollSkips


def test_many_polls_in_a_row_that_find_nothing_let_turns_skip_theirs() -> None:
    skips = PollSkips()
    for _ in range(EMPTY_POLLS_BEFORE_SKIP):
        assert not skips.is_possible
        skips.found_nothing()
    assert skips.is_possible
    assert not skips.is_single


def test_poll_that_finds_nothing_again_allows_as_many_skips_again() -> None:
    skips = PollSkips()
    for _ in range(EMPTY_POLLS_BEFORE_SKIP):
        skips.found_nothing()
    skips.skipped = TURNS_WITHOUT_POLL
    skips.found_nothing()
    assert skips.is_possible
    assert skips.skipped == 0


def test_wakeup_lets_one_turn_skip_its_poll() -> None:
    skips = PollSkips()
    skips.found_wakeup()
    assert skips.is_possible
    assert skips.is_single
    skips.expect_events()
    assert not skips.is_possible
    assert not skips.is_single


def test_wakeup_that_no_turn_used_does_not_end_later_skips() -> None:
    skips = PollSkips()
    skips.found_wakeup()
    for _ in range(EMPTY_POLLS_BEFORE_SKIP):
        skips.found_nothing()
    assert skips.is_possible
    assert not skips.is_single


def test_handle_that_takes_the_only_event_lets_one_turn_skip_its_poll() -> None:
    skips = PollSkips()
    skips.event_taken()
    assert not skips.is_possible, "there were several events, or no sleep"
    skips.found_one_event()
    skips.event_taken()
    assert skips.is_single


def test_sent_data_lets_the_next_turn_poll() -> None:
    skips = PollSkips()
    skips.found_one_event()
    skips.event_taken()
    skips.expect_events()
    assert not skips.is_possible
    assert not skips.is_single
    for _ in range(EMPTY_POLLS_BEFORE_SKIP):
        skips.found_nothing()
    skips.expect_events()
    assert not skips.is_possible
