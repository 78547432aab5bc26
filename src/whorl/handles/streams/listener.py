"""The listener, which takes the connections that arrive at a listening socket.

If `accept` returns no connection, there are four cases. No connection waits. It is gone already, and the next
may be fine. The process or the system has run out of descriptors or memory. Or the socket cannot listen. When
a resource has run out, the connection stays in the kernel and would be reported in every turn. So the
listener pauses for a while. It does so, too, if one connection after the other is refused.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.core import limits, states
from whorl.core.kernel.errors import CONNECTION_ERRORS
from whorl.core.pollers.contract import IOHandle
from whorl.core.timers.timed_callback import TimedCallback

if TYPE_CHECKING:
    from whorl.core.loop.loop import Loop

WOULD_BLOCK = frozenset({errno.EAGAIN, errno.EWOULDBLOCK})
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
PASSING = CONNECTION_ERRORS | {errno.EINTR}


class Listener(IOHandle):
    """A handle that calls `accepted(sock)` with each connection of a listening socket.

    It calls `refused(code)` with an error number when it can take connections no more: for a while
    (see `EXHAUSTED`), or for good. The owner of the socket keeps it and closes it.
    """

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
        self._retry_timer: TimedCallback | None = None  # set while no connections are accepted

    def resume(self) -> None:
        """Accept connections."""
        if self._retry_timer is None and not self._interest:
            self._poller.add(self, states.READABLE)

    def pause(self) -> None:
        """Leave connections in the kernel."""
        self._poller.remove(self)

    def _on_events(self, seen: int) -> None:
        """Accept one connection; if there are more, the next turn brings the next, as in libuv."""
        for _ in range(limits.ACCEPTS_PER_EVENT):
            if not self._interest:
                break
            answer = self._kernel.accept(self._sock)
            if not isinstance(answer, int):
                self._loop._figures.counters.accepts += 1
                self._accepted(answer[0])
                break
            if not self._should_retry(-answer):
                break
        else:  # The error lasts: it would come again in every turn.
            self._pause_for_a_while(-answer)

    def _should_retry(self, code: int) -> bool:
        """Return whether to ask for the next connection after this error."""
        if code in WOULD_BLOCK:
            return False
        if code in PASSING:
            return True
        if code in EXHAUSTED:
            self._pause_for_a_while(code)
        else:
            self.pause()
            self._refused(code)
        return False

    def _pause_for_a_while(self, code: int) -> None:
        """Accept nothing for a while."""
        self.pause()
        loop: Loop = self._loop  # type: ignore[assignment]  # each loop is one
        timer = TimedCallback(loop, loop.now() + limits.ACCEPT_RETRY_DELAY_NS, None, self._retry, ())
        self._retry_timer = timer
        loop._schedule(timer)
        self._refused(code)

    def _retry(self) -> None:
        self._retry_timer = None
        try:
            self.resume()
        except OSError as error:  # The kernel has no room for the watch yet.
            self._pause_for_a_while(error.errno or errno.ENOMEM)

    def _release(self) -> None:
        self.pause()
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None
