"""Waiting for the end of a child: by its pidfd, or by a thread if there are no pidfds."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from whorl.core.pollers.contract import IOHandle
from whorl.core.states import READABLE

if TYPE_CHECKING:
    import subprocess

    from whorl.core.loop.loop import Loop


#: The exit code in Popen for a child that other code has reaped, as in asyncio.
UNKNOWN_EXIT_CODE = 255


class ExitWatch(IOHandle):
    """A watch that reaps one child, and calls `on_exit(code)` in a turn of the loop.

    `code` is the exit status, or the negative number of the signal that ended the child. It is None if other
    code has reaped the child and did not note its exit code in the Popen object.
    """

    loop: Loop

    def __init__(
        self, loop: Loop, process: subprocess.Popen[bytes], on_exit: Callable[[int | None], object]
    ) -> None:
        super().__init__(loop)
        loop._mark_internal(self)
        self._process = process
        self._on_exit: Callable[[int | None], object] | None = on_exit
        self._has_waiting_thread = False  # whether a thread waits
        self._fd = loop._kernel.pidfd_open(process.pid)
        if self._fd == -errno.ESRCH:
            loop.call_soon(self._check_exit)  # It was reaped already, as when the program ignores SIGCHLD.
        elif self._fd < 0 or not self._watch():
            self._has_waiting_thread = True
            loop._host.await_exit(process.pid, self._exit_seen_by_thread)
        self._fd = max(self._fd, -1)

    def _watch(self) -> bool:
        """Watch the pidfd; return whether that worked."""
        try:
            self.loop._poller.add(self, READABLE)
        except OSError:
            self.loop._kernel.close(self._fd)
            self._fd = -1
            return False
        return True

    def send_signal(self, number: int, *, must_run: bool = False) -> None:
        """Send the child a signal; if it has ended, do nothing, or raise ProcessLookupError if `must_run`.

        Raises PermissionError, and OSError (EINVAL) if the number is no signal.
        """
        try:
            if self._process.returncode is not None or self.is_closing():
                raise ProcessLookupError(errno.ESRCH, "the child has ended")
            self.loop._host.signal_child(self._process.pid, self._fd, number)
        except ProcessLookupError:
            if must_run:
                raise

    def has_waiting_thread(self) -> bool:
        """Return whether a thread waits for the child; it reaps the child even if the loop is closed then."""
        return self._has_waiting_thread

    def detach(self) -> None:
        """Stop the watch; a thread reaps the child when it ends."""
        if self._has_waiting_thread:
            self._on_exit = None  # The waiting thread reaps the child, or the loop if it still runs then.
        else:
            self.close()
            if self._process.returncode is None:
                self.loop._host.await_exit(self._process.pid, self._reap_in_thread)

    def _on_events(self, seen: int) -> None:
        self._check_exit()

    def _exit_seen_by_thread(self) -> None:
        """Let the loop reap the child; the thread that waited for its end calls this."""
        try:
            self.loop.call_soon_threadsafe(self._check_exit)
        except RuntimeError:
            self._reap_in_thread()  # The loop is closed.

    def _check_exit(self) -> None:
        """Reap the child unless it was reaped before; if it has ended, close the watch and call `on_exit`."""
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
        """Reap the child and note its exit code, if there is one; return whether it has ended."""
        try:
            code = self.loop._host.reap(self._process.pid, self._fd)
        except ChildProcessError:
            return True
        if code is None:
            return False
        if self._process.returncode is None:
            self._process.returncode = code
        return True

    def _reap_in_thread(self) -> None:
        """Reap the child in the thread that has waited for it."""
        if self._process.returncode is None and self._reap() and self._process.returncode is None:
            self._process.returncode = UNKNOWN_EXIT_CODE

    def _release(self) -> None:
        self._on_exit = None
        self.loop._poller.remove(self)
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self.loop._kernel.close(fd)
