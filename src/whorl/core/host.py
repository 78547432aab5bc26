"""The host: what the loop needs of its process and takes more than a system call.

Threads, signals, name resolution. A simulated world passes a host of its own.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from typing import Any


class Host:
    """The real process."""

    def is_main_thread(self) -> bool:
        """Whether this is the only thread that may handle signals."""
        return threading.current_thread() is threading.main_thread()

    def process_id(self) -> int:
        """A number for this process; it differs in a forked child."""
        return os.getpid()

    def set_wakeup_fd(self, fd: int) -> int:
        """Where Python writes the numbers of signals from now on; returns where it did before."""
        return signal.set_wakeup_fd(fd, warn_on_full_buffer=False)

    def set_signal(self, number: int, handler: Any) -> Any:
        """Install a handler; system calls interrupted by this signal are restarted."""
        former = signal.signal(number, handler)
        if callable(handler):
            signal.siginterrupt(number, False)
        return former

    def thread_pool(self) -> Any:
        """What runs the loop's blocking work, None: the process's own pool (whorl.handles.threadpool)."""
        return None

    def getaddrinfo(
        self, host: Any, port: Any, family: int = 0, kind: int = 0, protocol: int = 0, flags: int = 0
    ) -> list[tuple[Any, ...]]:
        """Resolve a name; blocks (socket.getaddrinfo)."""
        return socket.getaddrinfo(host, port, family, kind, protocol, flags)

    def getnameinfo(self, address: Any, flags: int = 0) -> tuple[str, str]:
        """The names of an address; blocks (socket.getnameinfo)."""
        return socket.getnameinfo(address, flags)
