"""The probe: the interface by which an observer listens to the loop.

A loop without a probe pays one comparison per turn. A probe that raises is logged and removed;
the loop goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whorl.core.callback import Runnable
    from whorl.core.handle import Handle


class Probe:
    """The methods that an observer may override. All durations are in nanoseconds."""

    def turn_began(self, turn: int, ready: int) -> None:
        """Note that a turn begins; `ready` entries wait for it."""

    def polled(self, slept_ns: int, events: int) -> None:
        """Note that the poller came back."""

    def callback_ran(self, entry: Runnable, took_ns: int) -> None:
        """Note that an entry of the queue ran: a callback, a timer, or an I/O handle."""

    def timer_due(self, entry: Runnable, late_ns: int) -> None:
        """Note that a timer fell due, and how long after its deadline it was collected."""

    def handle_opened(self, handle: Handle) -> None:
        """Note that a handle was made."""

    def handle_closed(self, handle: Handle) -> None:
        """Note that a handle was closed and its callback ran."""
