"""Stand-ins for programs: a coroutine function that takes a `Program`, in the place of an executable."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whorl.sim.process.owner import ProcessHost

#: What stands in the place of a program. It returns the exit code, or None for 0.
ProgramMain = Callable[["Program"], Coroutine[Any, Any, "int | None"]]


class PipeFile:
    """The end of a simulated pipe, as the file object that the loop's methods for pipes take."""

    def __init__(self, kernel: Any, fd: int) -> None:
        self._kernel = kernel
        self._fd = fd
        self.closed: bool = False

    def fileno(self) -> int:
        """Return the descriptor. Raises ValueError if it is closed."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        return self._fd

    def close(self) -> None:
        """Close the descriptor."""
        if not self.closed:
            self.closed = True
            self._kernel.close(self._fd)


class Sink:
    """A stream that keeps nothing, or writes to a file: where output goes that nobody reads by a pipe."""

    def __init__(self, kernel: Any, fd: int = -1) -> None:
        self._kernel = kernel
        self._fd = fd

    def write(self, data: bytes) -> None:
        """Write bytes."""
        if self._fd >= 0:
            self._kernel.write(self._fd, data, 0)

    async def drain(self) -> None:
        """Return: there is always room."""

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            self._kernel.close(self._fd)
            self._fd = -1

    async def wait_closed(self) -> None:
        """Return: it is closed at once."""


class Program:
    """A stand-in that runs: its arguments, its streams, its signals."""

    def __init__(self, host: ProcessHost, pid: int, args: list[str], env: dict[str, str] | None) -> None:
        self.host: Any = host
        self.pid = pid
        self.args = args  #: the first one is the name by which it was started
        self.env: dict[str, str] = env or {}
        self.descriptors: dict[int, int] = {}  #: from 3 on, as it was started with
        self.stdin: asyncio.StreamReader = asyncio.StreamReader(loop=host.loop)
        self.stdout: Any = Sink(host.kernel)  #: as an `asyncio.StreamWriter`
        self.stderr: Any = Sink(host.kernel)
        self.handlers: dict[int, Callable[[], object]] = {}
        self._transports: list[Any] = []

    def on_signal(self, number: int, handler: Callable[[], object]) -> None:
        """Call a function for a signal, in the place of the default: the program ends."""
        self.handlers[int(number)] = handler

    # For the process that started it.

    async def connect(self, fds: dict[int, int]) -> None:
        """Open the streams on the descriptors that the program was given."""
        kernel, loop = self.host.kernel, asyncio.get_running_loop()
        if 0 in fds:
            protocol = asyncio.StreamReaderProtocol(self.stdin)
            transport, _ = await loop.connect_read_pipe(lambda: protocol, PipeFile(kernel, fds[0]))
            self._transports.append(transport)
        else:
            self.stdin.feed_eof()
        for number, name in ((1, "stdout"), (2, "stderr")):
            if number not in fds:
                continue
            if fds.get(1) == fds[number] and number == 2:
                self.stderr = self.stdout
            else:
                setattr(self, name, await self._writer(fds[number]))
        self.descriptors = {number: fd for number, fd in fds.items() if number > 2}

    async def _writer(self, fd: int) -> Any:
        kernel, loop = self.host.kernel, asyncio.get_running_loop()
        if kernel.file_size(fd) >= 0:
            return Sink(kernel, fd)
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), PipeFile(kernel, fd)
        )
        self._transports.append(transport)
        return asyncio.StreamWriter(transport, protocol, None, loop)

    async def finish(self) -> None:
        """Write what is left, and close the streams."""
        for writer in dict.fromkeys((self.stdout, self.stderr)):
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def abort(self) -> None:
        """Close all descriptors at once; what was not written is lost."""
        for transport in self._transports:
            abort = getattr(transport, "abort", transport.close)
            abort()
        for stream in (self.stdout, self.stderr):
            if isinstance(stream, Sink):
                stream.close()
        for fd in self.descriptors.values():
            self.host.kernel.close(fd)
        self.descriptors = {}
