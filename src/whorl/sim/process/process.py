"""The process of one simulated host, as its loop sees it: signals, threads, names, programs."""

from __future__ import annotations

import signal
import socket
import threading
from typing import TYPE_CHECKING, Any

from whorl.core.process.host import Host as Process
from whorl.core.process.signal_dispatch import SignalTable
from whorl.sim.errors import RealProgram

if TYPE_CHECKING:
    from collections.abc import Callable

    from whorl.sim.process.owner import ProcessHost


class SimProcess(Process):
    """A process in which the world's thread is the main thread."""

    def __init__(self, host: ProcessHost) -> None:
        self._host = host
        self._wakeup_fd = -1
        self._handlers: dict[int, Any] = {signal.SIGINT: signal.default_int_handler}
        self.signals = SignalTable(self)

    def is_main_thread(self) -> bool:
        return True

    def main_thread(self) -> int | None:
        return threading.get_ident()

    def process_id(self) -> int:
        return self._host.process_id

    # Signals.

    def set_wakeup_fd(self, fd: int) -> int:
        former, self._wakeup_fd = self._wakeup_fd, fd
        return former

    def set_signal(self, number: int, handler: Any) -> Any:
        number = int(number)
        if number in (signal.SIGKILL, signal.SIGSTOP):
            raise OSError(22, "Invalid argument")
        former = self._handlers.get(number, signal.SIG_DFL)
        self._handlers[number] = handler
        return former

    def get_signal(self, number: int) -> Any:
        return self._handlers.get(int(number), signal.SIG_DFL)

    def restore_signal(self, number: int, handler: Any) -> None:
        self.set_signal(number, handler)

    def raise_signal(self, number: int) -> None:
        """Get a signal: Python writes its number to the wakeup descriptor, and calls the handler."""
        handler = self.get_signal(number)
        if handler in (signal.SIG_IGN, None) or (handler is signal.SIG_DFL and number == signal.SIGCHLD):
            return
        if handler is signal.SIG_DFL or number == signal.SIGKILL:
            self._host.kill()
            return
        file = self._host.kernel.table.files.get(self._wakeup_fd)
        if file is not None:
            file.write(bytes([number]))
        handler(int(number), None)

    # Threads.

    def thread_pool(self) -> Any:
        return self._host.threads

    def start_thread(
        self, function: Callable[..., object], *args: Any, name: str | None = None, daemon: bool = False
    ) -> Any:
        """Call a function a little later, as a thread of its own would."""
        return self._host.threads.start(function, *args)

    # Names.

    def has_plain_numbers(self) -> bool:
        return False

    def getaddrinfo(
        self, host: Any, port: Any, family: int = 0, kind: int = 0, protocol: int = 0, flags: int = 0
    ) -> list[tuple[Any, ...]]:
        return self._host.look_up(host, port, family, kind, protocol, flags)

    def getnameinfo(self, address: Any, flags: int = 0) -> tuple[str, str]:
        return self._host.world.names.getnameinfo(address, flags)

    # Children.

    def spawn(self, args: Any, **options: Any) -> Any:
        raise RealProgram(f"program {args!r} was started")

    def reap(self, pid: int, pidfd: int) -> int | None:
        raise ChildProcessError(10, "No child processes")

    def signal_child(self, pid: int, pidfd: int, number: int) -> None:
        raise ProcessLookupError(3, "No such process")

    def kill(self, pid: int, number: int) -> None:
        if pid != self._host.process_id:
            raise ProcessLookupError(3, "No such process")
        self.raise_signal(number)

    def await_exit(self, pid: int, callback: Callable[[], object]) -> None:
        raise RealProgram(f"the end of process {pid} was waited for")


def temporary_failure() -> socket.gaierror:
    """Return the error of a name server that does not answer in time."""
    return socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
