"""The process of one simulated host, as its loop sees it: signals, threads, names, programs."""

from __future__ import annotations

import signal
import socket
import threading
from typing import TYPE_CHECKING, Any

from whorl.aio.loop import lifecycle
from whorl.core.process.host import Host as Process
from whorl.core.process.signal_dispatch import SignalTable
from whorl.sim.process.children import HARMLESS, Children

if TYPE_CHECKING:
    from collections.abc import Callable

    from whorl.sim.process.owner import ProcessHost


class SimProcess(Process):
    """A process in which the world's thread is the main thread."""

    def __init__(self, host: ProcessHost) -> None:
        self._host = host
        self._wakeup_fd = -1
        self._handlers: dict[int, Any] = {signal.SIGINT: signal.default_int_handler}
        self.signals: SignalTable = SignalTable(self)
        self.children: Children = Children(host)

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

    def _takes(self, number: int) -> bool:
        """Return whether a handler has to run for a signal; else do what the system does by itself."""
        handler = self.get_signal(number)
        if number == signal.SIGSTOP:
            self._host.pause()
        elif number == signal.SIGCONT:
            self._host.resume()
        if number == signal.SIGKILL:
            self._host.kill()
            return False
        if handler is signal.SIG_DFL and number not in HARMLESS:
            self._host.kill()
        return handler not in (signal.SIG_DFL, signal.SIG_IGN, None)

    def raise_signal(self, number: int) -> None:
        """Get a signal from the process itself: its handler runs at once."""
        if number and self._takes(int(number)):
            self._handle(int(number))

    def send_signal(self, number: int) -> None:
        """Get a signal from outside: its handler runs in the next turn. Signals of one number become one."""
        if self._takes(number):
            if not self._host.is_driven:
                self._handle(number)
            elif number not in self._host.pending_signals:
                self._host.pending_signals.append(number)

    def handle_signals(self) -> bool:
        """Call the handlers of the signals that have come; return whether the process goes on."""
        pending = self._host.pending_signals
        loop = self._host.loop
        lifecycle.set_running(loop)
        try:
            while pending:
                number = min(pending)  # as Python does it
                pending.remove(number)
                self._handle(number)
        except (SystemExit, KeyboardInterrupt):
            self._host.interrupt()
        finally:
            lifecycle.unset_running(loop)
        return not self._host.is_dead

    def _handle(self, number: int) -> None:
        """Do as Python: write the number to the wakeup descriptor, and call the handler."""
        file = self._host.kernel.table.files.get(self._wakeup_fd)
        if file is not None:
            file.write(bytes([number]))
        self.get_signal(number)(number, None)

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

    def has_stock_getaddrinfo(self) -> bool:
        return False

    def getaddrinfo(
        self, host: Any, port: Any, family: int = 0, kind: int = 0, protocol: int = 0, flags: int = 0
    ) -> list[tuple[Any, ...]]:
        return self._host.look_up(host, port, family, kind, protocol, flags)

    def getnameinfo(self, address: Any, flags: int = 0) -> tuple[str, str]:
        return self._host.world.names.getnameinfo(address, flags)

    # Children.

    def loop(self) -> Any:
        """Return the loop of the process."""
        return self._host.loop

    def spawn(self, args: Any, **options: Any) -> Any:
        return self.children.spawn(args, **options)

    def reap(self, pid: int, pidfd: int) -> int | None:
        return self.children.reap(pid)

    def signal_child(self, pid: int, pidfd: int, number: int) -> None:
        self.children.signal(pid, number)

    def kill(self, pid: int, number: int) -> None:
        if pid == self._host.process_id:
            self.raise_signal(number)
        else:
            self.children.signal(pid, number)

    def await_exit(self, pid: int, callback: Callable[[], object]) -> None:
        child = self.children.find(pid)
        if child is None or child.exit_code is not None:
            self._host.threads.start(callback)
        else:
            child.watchers.append(callback)


def temporary_failure() -> socket.gaierror:
    """Return the error of a name server that does not answer in time."""
    return socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
