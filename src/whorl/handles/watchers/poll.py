"""Poll: reports when a descriptor is ready that other code reads and writes."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from whorl.core import states
from whorl.core.callback import call_in_context, current_context
from whorl.core.kernel.errors import os_error
from whorl.core.pollers.contract import IOHandle
from whorl.core.states import Event

if TYPE_CHECKING:
    from typing import Self

    from whorl.core.loop.loop import Loop

    class HasFileno(Protocol):
        """A file object, a socket, or any other object with a descriptor."""

        def fileno(self) -> int: ...


EVENT_SETS = tuple(Event(number) for number in range(states.WATCHABLE + 1))


class Poll(IOHandle):
    """A watch of a descriptor (libuv: ``uv_poll_t``), which stays its owner's: `close` leaves it open.

    The descriptor becomes non-blocking. Raises PermissionError for a file that cannot be watched, such as a
    regular one. Raises OSError (EEXIST) if a handle of this loop watches the descriptor.
    """

    def __init__(self, loop: Loop, file: int | HasFileno) -> None:
        super().__init__(loop)
        self._poller = loop._poller
        self._callback: Callable[[Any, Event, OSError | None], object] | None = None
        self._context: Any = None
        try:
            self._fd = file if isinstance(file, int) else file.fileno()
            self._check_descriptor()
        except BaseException:
            loop._mark_internal(self)
            self._handle_state = states.CLOSED
            raise

    def _check_descriptor(self) -> None:
        """Find out whether the descriptor can be watched, and make it non-blocking."""
        if self._fd < 0:
            raise os_error(errno.EBADF)
        self._poller.add(self, states.READABLE)
        self._poller.remove(self)
        loop: Loop = self._loop  # type: ignore[assignment]  # each loop is one
        result = loop._kernel.set_blocking(self._fd, False)
        if result < 0:
            raise os_error(result)

    def start(self, events: int, callback: Callable[[Self, Event, OSError | None], object]) -> None:
        """Call `callback(handle, events, error)` whenever one of `events` is there.

        `events` are flags of `Event`: READABLE, WRITABLE, DISCONNECT, PRIORITIZED. They are
        levels: an event that is not handled is reported again in the next turn. A handle that is started
        already watches for the new events instead. An error of the descriptor stops the handle
        and calls it with OSError (EBADF) and no events.
        """
        self._check_open()
        if not callable(callback):
            raise TypeError(f"a callable object was expected by start(), got {callback!r}")
        if events & ~states.WATCHABLE:
            raise ValueError(f"cannot watch for {events!r}")
        self._seen = 0
        if not events:
            self.stop()
            return
        self._poller.modify(self, int(events))
        self._callback = callback
        self._context = current_context()
        self._activate()

    def stop(self) -> None:
        """Stop watching; drop seen events that were not yet reported."""
        self._poller.remove(self)
        self._deactivate()
        self._callback = None
        self._context = None

    def _on_events(self, seen: int) -> None:
        # An error or a hang-up may come alone; it counts as all events of the interest.
        seen &= self._interest | states.ERROR | states.HANGUP
        if seen == states.ERROR or seen == states.HANGUP:
            seen |= self._interest
        callback, context = self._callback, self._context
        if callback is None:
            return
        # Some files report an error together with urgent data and mean the latter (sysfs).
        if seen & states.ERROR and not seen & states.PRIORITIZED:
            self.stop()
            call_in_context(context, callback, (self, EVENT_SETS[0], os_error(errno.EBADF)))
        elif seen & states.WATCHABLE:
            call_in_context(context, callback, (self, EVENT_SETS[seen & states.WATCHABLE], None))

    def _release(self) -> None:
        self.stop()
