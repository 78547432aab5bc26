"""What programs read of asyncio's loop by names that are private there.

Each gives what asyncio's object would have under that name at this moment. To change that changes nothing,
but for the few that can be set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop
    from whorl.core.callback import Runnable
    from whorl.core.timers.timed_callback import TimedCallback


class Timers(list["TimedCallback"]):
    """The timers that wait, the earliest first; those that are cancelled are left out."""

    __slots__ = ()

    def clear(self) -> None:
        """Have none of them called."""
        for timer in self:
            timer.cancel()
        super().clear()


def scheduled(loop: AnyLoop) -> Timers:
    """The timers of a loop, without those of handles."""
    return Timers(sorted(timer for timer in loop._timer_queue.timers() if timer._when is not None))


def current_handle(loop: AnyLoop) -> Runnable | None:
    """What runs, in debug mode."""
    return loop._current_entry


def set_current_handle(loop: AnyLoop, handle: Any) -> None:
    """Let errors be reported with the origin of this handle, for those who run handles themselves."""
    loop._current_entry = handle


def self_pipe(end: int) -> Any:
    """An end of the pair of sockets that wakes the loop and brings it signals: 0 is read, 1 is written to."""

    def find(loop: AnyLoop) -> Any:
        return None if loop.is_closed() else loop._signal_pipe()._pair[end]

    return property(find)


def internal_descriptors(loop: AnyLoop) -> int:
    """How many descriptors of its own the loop reads, as asyncio counts them."""
    return 0 if loop.is_closed() else 1
