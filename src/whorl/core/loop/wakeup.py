"""The wakeup, by which other threads end the loop's sleep (the "self-pipe").

It is an eventfd, watched edge-triggered: every write is a new edge, so it never needs to be read.
Without eventfd a pair of sockets does the same; if the poller knows no edges, the loop reads.
"""

from __future__ import annotations

import errno
import functools
import weakref
from typing import TYPE_CHECKING, Any, Protocol

from whorl.core.handle import Handle
from whorl.core.kernel.errors import os_error
from whorl.core.pollers.contract import IOHandle
from whorl.core.states import READABLE

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if not cython.compiled:

    def announce(wakeup: Wakeup, waker: object) -> None:
        """Note a call that is about to write."""
        wakeup._wakers.add(waker)

    def take_leave(wakeup: Wakeup, waker: object) -> None:
        """Note that a call has written."""
        wakeup._wakers.discard(waker)

    def is_anybody_writing(wakeup: Wakeup) -> bool:
        """Return whether a call may be writing."""
        return bool(wakeup._wakers)

    def run_signal_handlers() -> None:
        """Call Python's handlers of the signals that have arrived; uncompiled, Python has done so."""


if TYPE_CHECKING:
    from collections.abc import Callable

    from whorl.core.callback import AbstractLoop
    from whorl.core.kernel.kernel import Kernel
    from whorl.core.pollers.contract import Poller
    from whorl.core.process.host import Host

    class WokenLoop(Protocol):
        """A loop, as the wakeup and the signal pipe see it beyond `AbstractLoop`."""

        _host: Host
        _poller: Poller

        def _mark_internal(self, handle: Handle) -> None: ...
        def _signal_arrived(self, number: int) -> None: ...


_ONE = (1).to_bytes(8, "little")
_DRAIN = 4096
#: A drain of fewer numbers was no full buffer: that of Linux holds 278 by default.
_FEW = 16


def _loop_of(handle: Handle) -> WokenLoop:
    """Return the loop of a handle."""
    loop: Any = handle._loop
    return loop  # type: ignore[no-any-return]


def _watch(handle: IOHandle) -> None:
    """Watch a handle for reading; if that fails, release its descriptors."""
    try:
        _loop_of(handle)._poller.add(handle, READABLE)
    except BaseException:
        handle._release()
        raise


class Wakeup(IOHandle):
    """The handle that ends the sleep of a loop, from any thread and from signal handlers.

    Another thread may be about to write when the loop is closed, and by then the number of the descriptor
    may mean another file. So a writer announces itself first (`_wakers`), and the last one closes the
    descriptors that were given up. Without the GIL, a lock stands between the note of each side and its look
    at the other's.
    """

    def __init__(self, loop: AbstractLoop, kernel: Kernel) -> None:
        self._set_up(loop)  # Nothing more: it is made with its loop, and users do not see it.
        self._kernel = kernel
        self._pair: Any = None
        self._write_fd = -1
        self._wakers: set[object] = set()  # the calls that may be writing, in any thread
        self._given_up: list[tuple[int, Any]] = []  # the descriptor and the pair to be closed
        # An interrupt may lose an edge, which does no harm: the loop finds the entries it was woken for.
        poller = _loop_of(self)._poller
        self._edge = poller.edge_triggered or poller.can_keep_idle_watches
        self._queued = self._edge  # It has nothing to do in a turn, so the poller never queues it.
        self._open()

    def _open(self) -> None:
        """Open the descriptors that are written and watched."""
        self._fd = self._write_fd = self._kernel.eventfd()
        if self._fd < 0:
            self._pair = self._kernel.socket_pair()
            if isinstance(self._pair, int):
                raise os_error(self._pair)
            self._fd = self._pair[0].fileno()
            self._write_fd = self._pair[1].fileno()
            self._edge = self._queued = False  # The bytes written to a socket have to be read.
        _watch(self)

    def renew(self) -> None:
        """Open new descriptors in a forked child, so that only this process wakes the loop."""
        self._wakers.clear()  # The other threads are the parent's.
        self._release()
        self._pair = None
        self._open()

    def make_visible(self) -> None:
        """Appear among the handles that polls find, for a caller that checks them before it sleeps."""
        self._queued = False

    def wake(self) -> None:
        """End the current or the next sleep. Does nothing once the loop is closed."""
        waker = object()
        try:
            announce(self, waker)
            if self._write_fd >= 0:
                self._kernel.write(self._write_fd, _ONE, 0)
        finally:
            take_leave(self, waker)
            if self._given_up:
                self._close_given_up()

    def _on_events(self, seen: int) -> None:
        if not self._edge:
            self._kernel.read(self._fd, _DRAIN)

    def _release(self) -> None:
        _loop_of(self)._poller.remove(self)
        self._given_up.append((self._fd, self._pair))
        self._fd = self._write_fd = -1
        self._close_given_up()

    def _close_given_up(self) -> None:
        """Close the descriptors that were given up. If a thread may still write, it closes them later."""
        while self._given_up and not is_anybody_writing(self):
            try:
                fd, pair = self._given_up.pop()
            except IndexError:  # Another thread was faster.
                break
            if pair is None:
                self._kernel.close(fd)
                continue
            for sock in pair:
                self._kernel.close_socket(sock)


def _on_signal(arrived: set[int], number: int, frame: object) -> None:
    """Add the number of a signal, as its handler in Python."""
    arrived.add(number)


#: The armed pipes: one is the wakeup fd, the others would be again once a later one is disarmed. They belong
#: to loops that have signal handlers. A later pipe must not restore one that was disarmed out of turn.
_armed: weakref.WeakSet[SignalPipe] = weakref.WeakSet()


class SignalPipe(IOHandle):
    """The pair of sockets to which Python's signal handler writes the number of each signal, as one byte.

    `arm` gives its write end to `signal.set_wakeup_fd`, `disarm` gives the former one back. A
    signal thus ends the loop's sleep even if it lands just before the sleep begins.

    While the loop is busy, a few hundred signals fill the buffer, and Python drops the numbers of later ones.
    Their Python handler, `on_signal`, runs all the same and keeps the number. Python writes a number before
    it calls the handler. So a number that was kept, and is not among those of a full buffer, was dropped.
    """

    def __init__(self, loop: AbstractLoop, kernel: Kernel) -> None:
        super().__init__(loop)
        _loop_of(self)._mark_internal(self)
        self._kernel = kernel
        self._pair = kernel.socket_pair()
        if isinstance(self._pair, int):
            raise os_error(self._pair)
        self._fd = self._pair[0].fileno()
        self._former: int | None = None  # the wakeup fd before ours; None: ours is not set
        self._arrived: set[int] = set()  # the signals whose Python handler ran since the last drain
        # That handler; it keeps no loop alive.
        self.on_signal: Callable[[int, object], None] = functools.partial(_on_signal, self._arrived)
        _watch(self)

    def renew(self) -> None:
        """Let the signals of this forked child be written to a pair of sockets of its own."""
        self._release()
        self._arrived.clear()
        self._pair = self._kernel.socket_pair()
        if isinstance(self._pair, int):
            raise os_error(self._pair)
        self._fd = self._pair[0].fileno()
        _watch(self)
        if self._former is not None:
            _loop_of(self)._host.set_wakeup_fd(self._pair[1].fileno())

    def is_armed(self) -> bool:
        """Return whether signals are written here."""
        return self._former is not None

    def arm(self, *, yield_to_others: bool = False) -> None:
        """Let signals be written here; if `yield_to_others`, only if they are written nowhere else.

        Raises ValueError outside the main thread (signal.set_wakeup_fd).
        """
        if self._former is not None:
            if not yield_to_others:
                self._take_back()
            return
        self._former = -1  # If a signal handler raises in here, `disarm` sees whether ours is set.
        try:
            self._former = _loop_of(self)._host.set_wakeup_fd(self._pair[1].fileno())
        except ValueError:
            self._former = None
            if not yield_to_others:
                raise
            # The main thread of another interpreter: it gets no signals.
        else:
            _armed.add(self)
            if self._former != -1 and yield_to_others:
                self.disarm()

    def _take_back(self) -> None:
        """Set this pipe as the wakeup fd again if another took its place, as asyncio does per new handler."""
        current = _loop_of(self)._host.set_wakeup_fd(self._pair[1].fileno())
        if current not in (self._pair[1].fileno(), -1):
            self._leave()
            self._former = current

    def _leave(self) -> None:
        """Let the pipes that would restore this one restore the one before it."""
        ours = self._pair[1].fileno()
        for later in _armed:
            if later._former == ours:
                later._former = self._former

    def disarm(self) -> None:
        """Restore the former wakeup fd, unless other code set another one meanwhile."""
        if self._former is None:
            return
        host = _loop_of(self)._host
        try:
            current = host.set_wakeup_fd(self._former)
        except (OSError, ValueError):
            current = host.set_wakeup_fd(-1)  # The former one is closed.
        if current != self._pair[1].fileno():
            try:
                host.set_wakeup_fd(current)
            except OSError:
                pass  # It is closed: the collector may end this pair first.
            self._leave()
        self._former = None
        _armed.discard(self)

    def _on_events(self, seen: int) -> None:
        dropped = self._arrived.copy()
        read = 0
        while True:
            numbers = self._kernel.recv(self._fd, _DRAIN)
            if isinstance(numbers, int):
                if numbers == -errno.EINTR:
                    continue
                if numbers == -errno.EAGAIN:
                    break
                raise os_error(numbers)
            for number in numbers:
                if number:
                    _loop_of(self)._signal_arrived(number)
                dropped.discard(number)
            read += len(numbers)
            if len(numbers) < _DRAIN:
                break
        if read >= _FEW:
            for number in sorted(dropped):
                _loop_of(self)._signal_arrived(number)
        # The handlers of the numbers just read, if they did not run yet: the next drain must not take these
        # for dropped ones.
        run_signal_handlers()
        self._arrived.clear()

    def _release(self) -> None:
        _loop_of(self)._poller.remove(self)
        self._fd = -1
        for sock in self._pair:
            self._kernel.close_socket(sock)
