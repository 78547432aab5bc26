"""The private attributes of asyncio's loop that programs read.

Each gives the value that asyncio's object would have under that name at this moment. To change such a value
changes nothing, but for the few attributes that can be set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop
    from whorl.core.callback import Runnable
    from whorl.core.timers.timed_callback import TimedCallback


class Timers(list["TimedCallback"]):
    """The timers that wait, the earliest first; cancelled ones are left out."""

    __slots__ = ()

    def clear(self) -> None:
        """Cancel the call of all of them."""
        for timer in self:
            timer.cancel()
        super().clear()


def scheduled(loop: AnyLoop) -> Timers:
    """Return the timers of a loop, without those of handles."""
    return Timers(sorted(timer for timer in loop._timer_queue.timers() if timer._when is not None))


def current_handle(loop: AnyLoop) -> Runnable | None:
    """Return the handle that runs, in debug mode."""
    return loop._current_entry


def set_current_handle(loop: AnyLoop, handle: Any) -> None:
    """Let errors be reported with the origin of this handle, for programs that run handles themselves."""
    loop._current_entry = handle


def self_pipe(end: int) -> Any:
    """Return an end of the socket pair for wakeups and signals: 0 is read, 1 is written to."""

    def find(loop: AnyLoop) -> Any:
        return None if loop.is_closed() else loop._signal_pipe()._pair[end]

    return property(find)


def internal_descriptors(loop: AnyLoop) -> int:
    """Return the number of internal descriptors that the loop reads, as asyncio counts them."""
    return 0 if loop.is_closed() else 1


def nest_patched(loop: AnyLoop) -> bool:
    """Return True, by which `nest_asyncio` knows a loop whose runs nest; else there is no such attribute."""
    if not loop._allows_nested_runs():
        raise AttributeError(f"{type(loop).__name__!r} object has no attribute '_nest_patched'")
    return True
