"""Waiting for the end of a child: by its pidfd, or by a thread where there are none."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from whorl.core.pollers.contract import IOHandle
from whorl.core.states import Event

if TYPE_CHECKING:
    import subprocess

    from whorl.core.loop.loop import Loop

READABLE = int(Event.READABLE)


#: What Popen shows of a child that somebody else has reaped, as in asyncio.
UNKNOWN_EXIT_CODE = 255


class ExitWatch(IOHandle):
    """Reaps one child, and calls `on_exit(code)` in a turn of the loop.

    `code` is the exit status, or the negative number of the signal that ended the child, or None if
    somebody else has reaped it and nobody noted what came out.
    """

    loop: Loop

    def __init__(
        self, loop: Loop, process: subprocess.Popen[bytes], on_exit: Callable[[int | None], object]
    ) -> None:
        super().__init__(loop)
        loop._mark_internal(self)
        self._process = process
        self._on_exit: Callable[[int | None], object] | None = on_exit
        self._awaited = False  # whether a thread waits
        self._fd = loop._kernel.pidfd_open(process.pid)
        if self._fd == -errno.ESRCH:
            loop.call_soon(self._look)  # Somebody has reaped it already: signals of children may be ignored.
        elif self._fd < 0 or not self._watch():
            self._awaited = True
            loop._host.await_exit(process.pid, self._ended_elsewhere)
        self._fd = max(self._fd, -1)

    def _watch(self) -> bool:
        """Watch the pidfd; whether that can be done."""
        try:
            self.loop._poller.add(self, READABLE)
        except OSError:
            self.loop._kernel.close(self._fd)
            self._fd = -1
            return False
        return True

    def send_signal(self, number: int, *, must_run: bool = False) -> None:
        """Send the child a signal; if it has ended, nothing happens, or ProcessLookupError is raised.

        Raises PermissionError, and OSError (EINVAL) for what is no signal.
        """
        try:
            if self._process.returncode is not None or self.is_closing():
                raise ProcessLookupError(errno.ESRCH, "the child has ended")
            self.loop._host.signal_child(self._process.pid, self._fd, number)
        except ProcessLookupError:
            if must_run:
                raise

    def is_awaited(self) -> bool:
        """Return whether a thread waits for the child; it reaps it also if the loop is closed by then."""
        return self._awaited

    def leave_to_itself(self) -> None:
        """Watch no more; a thread reaps the child when it ends."""
        if self._awaited:
            self._on_exit = None  # The thread that is waiting does it, or the loop if it still runs then.
        else:
            self.close()
            if self._process.returncode is None:
                self.loop._host.await_exit(self._process.pid, self._reap_alone)

    def _on_events(self, seen: int) -> None:
        self._look()

    def _ended_elsewhere(self) -> None:
        """The child has ended; called in a thread that was waiting for that."""
        try:
            self.loop.call_soon_threadsafe(self._look)
        except RuntimeError:
            self._reap_alone()  # The loop is closed.

    def _look(self) -> None:
        """Reap the child, if that was not done before."""
        if self.is_closing():
            return
        try:
            if self._process.returncode is None and not self._reap():
                return
        except OSError:
            self.close()  # It would fail again in every turn.
            raise
        code, on_exit = self._process.returncode, self._on_exit
        if code is None:
            self._process.returncode = UNKNOWN_EXIT_CODE
        self.close()
        if on_exit is not None:
            on_exit(code)

    def _reap(self) -> bool:
        """Reap the child and note its exit code, if there is one; whether it has ended."""
        try:
            code = self.loop._host.reap(self._process.pid, self._fd)
        except ChildProcessError:
            return True
        if code is None:
            return False
        if self._process.returncode is None:
            self._process.returncode = code
        return True

    def _reap_alone(self) -> None:
        """Reap the child in the thread that has waited for it."""
        if self._process.returncode is None and self._reap() and self._process.returncode is None:
            self._process.returncode = UNKNOWN_EXIT_CODE

    def _release(self) -> None:
        self._on_exit = None
        self.loop._poller.remove(self)
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self.loop._kernel.close(fd)
