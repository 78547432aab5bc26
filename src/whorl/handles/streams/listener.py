"""The listener, which takes the connections that arrive at a listening socket.

If `accept` returns no connection, there are four cases. No connection waits. It is gone already, and the next
may be fine. The process or the system has run out of descriptors or memory. Or the socket cannot listen. When
a resource has run out, the connection stays in the kernel and would be reported in every turn. So the
listener rests for a while.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.core.limits import ACCEPT_REST_NS, ACCEPTS_PER_EVENT
from whorl.core.pollers.contract import IOHandle
from whorl.core.states import Event
from whorl.core.timers.timed_callback import TimedCallback

if TYPE_CHECKING:
    from whorl.core.loop.loop import Loop

READABLE = int(Event.READABLE)
NONE_LEFT = frozenset({errno.EAGAIN, errno.EWOULDBLOCK})
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
# Errors of the connection, not of the listening socket (man 2 accept, "Error handling").
GONE = frozenset(
    {
        errno.ECONNABORTED,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.EINTR,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENONET,
        errno.ENOPROTOOPT,
        errno.EOPNOTSUPP,
        errno.EPERM,
        errno.EPROTO,
    }
)


class Listener(IOHandle):
    """A handle that calls `accepted(sock)` with each connection of a listening socket.

    It calls `refused(code)` with an error number when it can take connections no more: for a while
    (see `EXHAUSTED`), or for good. The owner of the socket keeps it and closes it.
    """

    __slots__ = ("_accepted", "_kernel", "_poller", "_refused", "_rest", "_sock")

    def __init__(
        self, loop: Loop, sock: Any, accepted: Callable[[Any], object], refused: Callable[[int], object]
    ) -> None:
        super().__init__(loop)
        loop._mark_internal(self)
        self._kernel = loop._kernel
        self._poller = loop._poller
        self._sock = sock
        self._fd = sock.fileno()
        self._accepted: Callable[[Any], object] = accepted
        self._refused: Callable[[int], object] = refused
        self._rest: TimedCallback | None = None  # the end of the rest, while it rests

    def resume(self) -> None:
        """Accept connections."""
        if self._rest is None and not self._interest:
            self._poller.add(self, READABLE)

    def pause(self) -> None:
        """Leave connections in the kernel."""
        self._poller.remove(self)

    def _on_events(self, seen: int) -> None:
        """Accept one connection; if there are more, the next turn brings the next, as in libuv."""
        for _ in range(ACCEPTS_PER_EVENT):
            if not self._interest:
                break
            answer = self._kernel.accept(self._sock)
            if not isinstance(answer, int):
                self._accepted(answer[0])
                break
            if not self._goes_on_after(-answer):
                break

    def _goes_on_after(self, code: int) -> bool:
        """Return whether to ask for the next connection after this error."""
        if code in NONE_LEFT:
            return False
        if code in GONE:
            return True
        self.pause()
        if code in EXHAUSTED:
            self._begin_rest()
        self._refused(code)
        return False

    def _begin_rest(self) -> None:
        loop: Loop = self._loop  # type: ignore[assignment]  # each loop is one
        rest = TimedCallback(loop, loop.now() + ACCEPT_REST_NS, None, self._end_rest, ())
        self._rest = rest
        loop._schedule(rest)

    def _end_rest(self) -> None:
        self._rest = None
        self.resume()

    def _release(self) -> None:
        self.pause()
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
