"""The host: what the loop needs of its process and takes more than a system call.

Threads, signals, children, name resolution. A simulated world passes a host of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from threading import get_ident
from typing import Any

from whorl.core.process.signal_dispatch import SignalTable

# Python's own function, unless other code had replaced it before.
_STDLIB_GETADDRINFO = socket.getaddrinfo if socket.getaddrinfo.__module__ == "socket" else None


def _is_glibc() -> bool:
    """Return whether the C library is glibc (man 3 confstr)."""
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (OSError, ValueError):
        return False


_IS_GLIBC = _is_glibc()


def call_at_forks(
    before: Callable[[], object] | None = None,
    after: Callable[[], object] | None = None,
    in_child: Callable[[], object] | None = None,
) -> None:
    """Call functions before each of this process's forks by Python, after it, and in the child, for ever.

    Source: ``os.register_at_fork``.
    """
    wanted: dict[str, Any] = {"before": before, "after_in_parent": after, "after_in_child": in_child}
    os.register_at_fork(**{name: function for name, function in wanted.items() if function is not None})


class Host:
    """The real process."""

    def is_main_thread(self) -> bool:
        """Return whether this is the only thread that may handle signals."""
        return get_ident() == _main_thread

    def main_thread(self) -> int | None:
        """Return the number of the thread that may handle signals."""
        return _main_thread

    #: A number for this process; it differs in a forked child.
    process_id: Callable[[], int] = staticmethod(os.getpid)

    def set_wakeup_fd(self, fd: int) -> int:
        """Set the descriptor to which Python writes the numbers of signals; return the former one."""
        return signal.set_wakeup_fd(fd, warn_on_full_buffer=False)

    def set_signal(self, number: int, handler: Any) -> Any:
        """Install a handler; system calls interrupted by this signal are restarted."""
        former = signal.signal(number, handler)
        if callable(handler):
            signal.siginterrupt(number, False)
        return former

    def get_signal(self, number: int) -> Any:
        """Return the handler of a signal; None if it was not installed by Python (signal.getsignal)."""
        return signal.getsignal(number)

    def restore_signal(self, number: int, handler: Any) -> None:
        """Install a handler as `signal.signal` does it."""
        signal.signal(number, handler)

    def raise_signal(self, number: int) -> None:
        """Send a signal to this thread (signal.raise_signal)."""
        signal.raise_signal(number)

    #: The listeners of each signal. A host with signals of its own has a table of its own.
    signals: SignalTable

    def thread_pool(self) -> Any:
        """Return the pool for blocking work; None: that of the process, `handles/threads/thread_pool`."""
        return None

    def start_thread(
        self, function: Callable[..., object], *args: Any, name: str | None = None, daemon: bool = False
    ) -> Any:
        """Call a function in a new thread; return the thread. Raises RuntimeError if none can be started."""
        thread = threading.Thread(target=function, args=args, name=name, daemon=daemon)
        thread.start()
        return thread

    def has_plain_numbers(self) -> bool:
        """Return whether the results of `getaddrinfo` for numbers are known: of Python's own, with glibc.

        Other C libraries answer otherwise: musl gives a number a canonical name.
        """
        return _IS_GLIBC and self.has_stock_getaddrinfo()

    def has_stock_getaddrinfo(self) -> bool:
        """Return whether `getaddrinfo` is Python's own, so that the C library's may take its place."""
        return type(self).getaddrinfo is Host.getaddrinfo and socket.getaddrinfo is _STDLIB_GETADDRINFO

    def getaddrinfo(
        self, host: Any, port: Any, family: int = 0, kind: int = 0, protocol: int = 0, flags: int = 0
    ) -> list[tuple[Any, ...]]:
        """Resolve a name; this blocks (socket.getaddrinfo).

        A name with a zero byte in it, which Python would cut off there, is not known (gaierror).
        """
        for name in (host, port):
            if (isinstance(name, bytes) and b"\0" in name) or (isinstance(name, str) and "\0" in name):
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return socket.getaddrinfo(host, port, family, kind, protocol, flags)

    def getnameinfo(self, address: Any, flags: int = 0) -> tuple[str, str]:
        """Return the names of an address; this blocks (socket.getnameinfo)."""
        return socket.getnameinfo(address, flags)

    # Children.

    def spawn(
        self, args: Any, *, moves: dict[int, int] | None = None, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start a program (subprocess.Popen); return when it runs, and raise the error if it cannot.

        `moves` gives, for each descriptor of the child, the one of ours that becomes it. Ours must lie above
        all of the child's.
        """
        if not moves:
            return subprocess.Popen(args, **options)
        targets = moves

        def move() -> None:
            for target, source in targets.items():
                os.dup2(source, target)
            for name in os.listdir("/proc/self/fd"):
                if (fd := int(name)) > 2 and fd not in targets:
                    with contextlib.suppress(OSError):
                        os.set_inheritable(fd, False)

        # Not by pass_fds: functions that run in every child after a fork may close such a number.
        options.update(close_fds=False, preexec_fn=move)
        reserved = _reserve_fds(targets)
        try:
            return subprocess.Popen(args, **options)
        finally:
            for fd in reserved:
                os.close(fd)

    def reap(self, pid: int, pidfd: int) -> int | None:
        """Return the exit code of a child, and reap it; return None while it runs.

        A negative code is the signal that ended the child. `pidfd`, if it is not -1, names the child beyond
        doubt. Raises ChildProcessError if other code has reaped it (man 2 waitid).
        """
        if pidfd >= 0:
            try:
                result = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
            except ChildProcessError:
                raise
            except OSError:
                pass  # Linux before 5.4 has pidfds that cannot be waited for.
            else:
                if result is None:
                    return None
                exited = result.si_code == os.CLD_EXITED
                return result.si_status if exited else -result.si_status
        reaped, status = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if reaped else None

    def signal_child(self, pid: int, pidfd: int, number: int) -> None:
        """Send a signal to a child that has not been reaped; `pidfd` names it beyond doubt if it is not -1.

        Raises ProcessLookupError, PermissionError (man 2 pidfd_send_signal, man 2 kill).
        """
        if pidfd >= 0:
            try:
                signal.pidfd_send_signal(pidfd, number)
            except ProcessLookupError:
                raise
            except OSError:
                pass  # If the call is forbidden, `kill` decides what is allowed.
            else:
                return
        os.kill(pid, number)

    def kill(self, pid: int, number: int) -> None:
        """Send a signal to any process (man 2 kill)."""
        os.kill(pid, number)

    def await_exit(self, pid: int, callback: Callable[[], object]) -> None:
        """Call `callback` in another thread when a child has ended; do not reap the child.

        Raises RuntimeError if no thread can be started.
        """

        def wait() -> None:
            try:
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:
                pass  # Other code has reaped the child.
            callback()

        self.start_thread(wait, name=f"whorl-child-{pid}", daemon=True)


Host.signals = SignalTable(Host())  # signals belong to the process, not to a loop


def _note_main_thread() -> None:
    """Remember which thread handles signals; in a forked child that is the thread that forked."""
    global _main_thread
    _main_thread = threading.main_thread().ident


_main_thread: int | None
_note_main_thread()
os.register_at_fork(after_in_child=_note_main_thread)  # threading's own function for this ran before


def _reserve_fds(targets: dict[int, int]) -> list[int]:
    """Open each free number, so that starting a program opens nothing on one of them; return those."""
    reserved = []
    for target, source in targets.items():
        fd = fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, target)
        if fd == target:
            reserved.append(fd)
        else:
            os.close(fd)
    return reserved
