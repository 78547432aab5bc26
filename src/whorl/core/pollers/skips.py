"""`PollSkips`: the polls that a busy loop skips, because they would find nothing.

A poll is a system call, and most short turns are quicker than one. So a loop with ready entries skips polls:

    32 polls in a row did not sleep and found nothing    -> at most 15 turns skip theirs, within 50 µs
    a sleep found only the wakeup of another thread      -> one turn skips its poll
    a sleep found one event, whose handle took all of it -> one turn skips its poll
    somebody watches a descriptor, or sends data         -> the next turn polls: events may come at once

The poller and the handles report what they know; `Loop._turn` asks. The bounds are in `whorl.core.limits`.
"""

from __future__ import annotations

from whorl.core import limits


class PollSkips:
    """Knows whether a loop may skip its next polls. It allows no skip until somebody reports something."""

    def __init__(self) -> None:
        self.is_possible: bool = False  # whether the next turn may skip its poll
        self.polled_at: int = 0  # when the last poll ended after which skips were possible, in ticks
        self.is_single: bool = False  # whether only the next turn may skip
        self.skipped: int = 0  # the turns without a poll since the last one
        self._empty_polls = 0  # in a row, counted up to EMPTY_POLLS_BEFORE_SKIP
        self._has_one_event = False  # whether the last poll slept, and found one event

    def expect_events(self) -> None:
        """Let the next turns poll: events may come at any time."""
        self.is_possible = self.is_single = self._has_one_event = False
        self._empty_polls = 0

    def found_nothing(self) -> None:
        """Note a poll that did not sleep and found nothing."""
        self.is_single = self._has_one_event = False
        self.skipped = 0
        if self._empty_polls < limits.EMPTY_POLLS_BEFORE_SKIP:
            self._empty_polls += 1
        self.is_possible = self._empty_polls == limits.EMPTY_POLLS_BEFORE_SKIP

    def found_wakeup(self) -> None:
        """Note a sleep that found an event, but nothing for a handle to do."""
        self.is_possible = self.is_single = True
        self.skipped = 0

    def found_one_event(self) -> None:
        """Note a sleep that found one event."""
        self._has_one_event = True

    def event_taken(self) -> None:
        """Note that a handle takes all of its event. If it sends, it expects events afterwards."""
        if self._has_one_event:
            self._has_one_event = False
            self.found_wakeup()
