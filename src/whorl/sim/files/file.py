"""Open files, their watches, and the descriptors of a process.

An open file may have several descriptors (dup, or passed through a UNIX socket). It is released when the last
one is closed.
"""

from __future__ import annotations

import errno
import os
import socket
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from whorl.sim.chance.decisions import Decisions
    from whorl.sim.wire.timeline import Event

AGAIN = -errno.EAGAIN
AF_INET6 = int(socket.AF_INET6)

# man 2 epoll_ctl
EPOLLIN, EPOLLPRI, EPOLLOUT, EPOLLERR, EPOLLHUP, EPOLLRDHUP = 0x1, 0x2, 0x4, 0x8, 0x10, 0x2000
EPOLLET = 1 << 31
ALWAYS = EPOLLERR | EPOLLHUP

#: The directions of a socket that are shut (man 2 shutdown).
READING, WRITING, BOTH = 1, 2, 3

#: The descriptors of simulated processes begin here. Those of the real process are smaller.
FIRST_FD = 1024
_FIRST = FIRST_FD


class Machine(Protocol):
    """The host, as its open files see it."""

    name: str
    is_off: bool  # it has no power
    decisions: Decisions

    def descriptor_of(self, file: File) -> int: ...
    def now(self) -> int: ...
    def time(self) -> int: ...
    def post(self, delay: int, act: Callable[..., object], args: tuple[Any, ...]) -> None: ...
    def send(self, delay: int, event: Event) -> None: ...
    def after(self, delay: int, act: Callable[..., object], *args: Any) -> None: ...


class Watcher:
    """A watch of an open file."""

    def wake(self) -> None:
        """Look at the file: it has changed."""

    def end(self) -> None:
        """Forget the file: nobody has a descriptor any more."""


class File:
    """An open file."""

    kind = 0o140000  # the file type of `st_mode`: a socket

    def __init__(self, machine: Machine) -> None:
        self.machine: Machine = machine
        self.references: int = 0  # descriptors, and messages under way that carry it
        self.watches: list[Watcher] = []
        self.flags: int = os.O_RDWR
        self.is_whole: bool = False  # each write is read as it was written, or is done at once; none is cut

    def readiness(self) -> int:
        """Return the mask that epoll would report."""
        return 0

    def changed(self) -> None:
        """Tell all watches that there is a new reason to look; for those by edges it is a new edge."""
        for watch in self.watches:
            watch.wake()

    def read(self, limit: int) -> bytes | int:
        """Return at most `limit` bytes, none at the end, or the negative error number."""
        return -errno.EINVAL

    def write(self, data: bytes) -> int:
        """Return how many bytes were taken, or the negative error number."""
        return -errno.EINVAL

    def unread(self) -> int:
        """Return how many bytes a read would find (FIONREAD), or the negative error number."""
        return -errno.ENOTTY

    def await_room(self) -> None:
        """Note that a write was refused, so that room is an event when there is some."""

    def released(self) -> None:
        """End: nobody has a descriptor any more."""

    # As the end of a channel.

    def reset(self) -> None:
        """Handle bytes that were refused; by itself, a file learns elsewhere that nobody reads."""

    def fail(self, code: int) -> None:
        """Break the connection with an error."""

    def patience(self) -> int:
        """Return how long data may stay unanswered, in nanoseconds; 0: as long as there are attempts."""
        return 0


class DescriptorTable:
    """The descriptors of one process. The lowest free number is the next one (POSIX)."""

    def __init__(self, limit: int) -> None:
        self.files: dict[int, File] = {}
        self.limit: int = limit  # how many there may be
        self.inherited: set[int] = set()  # those that the programs would get which a process starts
        self.changes: int = 0  # how often a descriptor was added or removed, or a socket's mode changed
        self._open: list[File | None] = []  # the same files, by descriptor from the first one on
        self._free: list[int] = []
        self._next = FIRST_FD

    def find(self, fd: int) -> File | None:
        """Return the open file of a descriptor."""
        place = fd - _FIRST
        return self._open[place] if 0 <= place < len(self._open) else None

    def add(self, file: File, lowest: int = FIRST_FD) -> int:
        """Give a file a descriptor; return -EMFILE if there are no more."""
        if len(self.files) >= self.limit:
            return -errno.EMFILE
        if lowest > FIRST_FD:
            fd = lowest
            while fd in self.files:
                fd += 1
            if fd >= self._next:
                for skipped in range(self._next, fd):
                    heappush(self._free, skipped)
                self._next = fd + 1
            else:
                self._free.remove(fd)
                self._free.sort()
        elif self._free:
            fd = heappop(self._free)
        else:
            fd = self._next
            self._next = fd + 1
        self.files[fd] = file
        while len(self._open) <= fd - FIRST_FD:
            self._open.append(None)
        self._open[fd - FIRST_FD] = file
        self.changes += 1
        file.references += 1
        return fd

    def remove(self, fd: int) -> int:
        """Close a descriptor."""
        file = self.files.pop(fd, None)
        if file is None:
            return -errno.EBADF
        self._open[fd - FIRST_FD] = None
        self.inherited.discard(fd)
        self.changes += 1
        heappush(self._free, fd)
        unreferenced(file)
        return 0

    def take_all(self) -> dict[int, File]:
        """Return all open files, and keep none."""
        files, self.files = self.files, {}
        self._open.clear()
        self.changes += 1
        return files


def unreferenced(file: File) -> None:
    """Take one reference away; release the file with the last one."""
    file.references -= 1
    if file.references <= 0:
        for watch in list(file.watches):
            watch.end()
        file.released()


class Counter(File):
    """An eventfd (man 2 eventfd)."""

    kind = 0

    def __init__(self, machine: Machine) -> None:
        File.__init__(self, machine)
        self.count: int = 0
        self.is_whole = True

    def readiness(self) -> int:
        return EPOLLOUT | (EPOLLIN if self.count else 0)

    def read(self, limit: int) -> bytes | int:
        if limit < 8:
            return -errno.EINVAL
        if not self.count:
            return -errno.EAGAIN
        count, self.count = self.count, 0
        return count.to_bytes(8, "little")

    def write(self, data: bytes) -> int:
        if len(data) != 8:
            return -errno.EINVAL
        self.count += int.from_bytes(data, "little")
        self.changed()
        return 8
