"""epoll: watches, and the list of those that may be ready (man 7 epoll).

A watch belongs to an open file, not to a descriptor. It lives on while a duplicate does. A change of the file
puts its watches on the list; a poll looks only at these.
"""

from __future__ import annotations

import errno

from whorl.sim.files.file import ALWAYS, EPOLLET, EPOLLIN, File, Machine, Watcher

ADD, DEL, MOD = 1, 2, 3


class Watch(Watcher):
    """One file in an epoll, under the number it was added by."""

    def __init__(self, epoll: Epoll, file: File, fd: int, mask: int, generation: int) -> None:
        self.epoll: Epoll = epoll
        self.file: File = file
        self.fd: int = fd
        self.mask: int = mask
        self.generation: int = generation
        self.seen: int = 0  # the events of the last poll

    def wake(self) -> None:
        """Put this watch on the list if its file is ready."""
        if self.file.readiness() & (self.mask | ALWAYS):
            epoll = self.epoll
            was_idle = not epoll.ready
            epoll.ready[self] = None
            if was_idle and epoll.watches:
                epoll.changed()

    def end(self) -> None:
        """Forget the file."""
        self.file.watches.remove(self)
        self.epoll.watched.pop((self.file, self.fd), None)
        self.epoll.ready.pop(self, None)


class Epoll(File):
    """A set of watches."""

    kind = 0

    def __init__(self, machine: Machine) -> None:
        File.__init__(self, machine)
        self.watched: dict[tuple[File, int], Watch] = {}
        self.ready: dict[Watch, None] = {}  # in the order in which they became ready

    def readiness(self) -> int:
        return EPOLLIN if self.ready else 0

    def change(self, operation: int, file: File, fd: int, mask: int, generation: int) -> int:
        """Add, change or end a watch (man 2 epoll_ctl)."""
        watch = self.watched.get((file, fd))
        if operation == ADD:
            if watch is not None:
                return -errno.EEXIST
            watch = self.watched[file, fd] = Watch(self, file, fd, mask, generation)
            file.watches.append(watch)
            watch.wake()
        elif watch is None:
            return -errno.ENOENT
        elif operation == MOD:
            watch.mask, watch.generation = mask, generation
            self.ready.pop(watch, None)
            watch.wake()
        else:
            watch.end()
        return 0

    def collect(self, limit: int) -> list[Watch]:
        """Return the ready watches, each with what it has seen, at most `limit`; edges are used up."""
        found: list[Watch] = []
        if not self.ready:
            return found
        is_only = len(self.ready) == 1
        for watch in list(self.ready):
            watch.seen = watch.file.readiness() & (watch.mask | ALWAYS)
            if watch.seen:
                found.append(watch)
                if is_only and not watch.mask & EPOLLET:
                    break
            del self.ready[watch]
            if watch.seen and not watch.mask & EPOLLET:
                self.ready[watch] = None  # at the end: others come first in the next poll
            if len(found) == limit:
                break
        return found

    def released(self) -> None:
        for watch in list(self.watched.values()):
            watch.end()
