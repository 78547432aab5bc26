"""Pipes (man 7 pipe). Bytes lie in pages, and what was read of a page is no room until all of it was."""

from __future__ import annotations

import errno
import os
import stat
from collections import deque

from whorl.sim.files.file import EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, File, Machine

PAGE = 4096
PAGES = 16


class Page:
    """One page of a pipe: what was written to it, and how much of that was read."""

    __slots__ = ("data", "start")

    def __init__(self, data: bytes) -> None:
        self.data: bytearray = bytearray(data)
        self.start: int = 0


class ReadEnd(File):
    """The end to read from."""

    __slots__ = ("pages", "writer")

    kind = stat.S_IFIFO

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.flags: int = os.O_RDONLY
        self.pages: deque[Page] = deque()
        self.writer: WriteEnd | None = None  # None: it is closed

    def readiness(self) -> int:
        return (EPOLLIN if self.pages else 0) | (EPOLLHUP if self.writer is None else 0)

    def read(self, limit: int) -> bytes | int:
        pages = self.pages
        if not pages:
            return b"" if self.writer is None or not limit else -errno.EAGAIN
        was_full = len(pages) >= PAGES
        data = b""
        while pages and len(data) < limit:
            page = pages[0]
            part = page.data[page.start : page.start + limit - len(data)]
            data += part
            page.start += len(part)
            if page.start == len(page.data):
                pages.popleft()
        if was_full and len(pages) < PAGES and self.writer is not None:
            self.writer.changed()
        return data

    def unread(self) -> int:
        return sum(len(page.data) - page.start for page in self.pages)

    def write(self, data: bytes) -> int:
        return -errno.EBADF

    def released(self) -> None:
        if self.writer is not None:
            self.writer.reader = None
            self.writer.changed()


class WriteEnd(File):
    """The end to write to."""

    __slots__ = ("pages", "reader")

    kind = stat.S_IFIFO

    def __init__(self, machine: Machine, reader: ReadEnd) -> None:
        super().__init__(machine)
        self.flags: int = os.O_WRONLY
        self.pages: deque[Page] = reader.pages
        self.reader: ReadEnd | None = reader  # None: it is closed
        reader.writer = self

    def readiness(self) -> int:
        return (EPOLLOUT if len(self.pages) < PAGES else 0) | (EPOLLERR if self.reader is None else 0)

    def read(self, limit: int) -> bytes | int:
        return -errno.EBADF

    def unread(self) -> int:
        return sum(len(page.data) - page.start for page in self.pages)

    def write(self, data: bytes) -> int:
        if not data:
            return 0
        if self.reader is None:
            return -errno.EPIPE
        pages, size, done = self.pages, len(data), 0
        rest = size % PAGE  # It joins the last page if there is room for it.
        if rest and pages and len(pages[-1].data) + rest <= PAGE:
            pages[-1].data += data[:rest]
            done = rest
        while done < size and len(pages) < PAGES:
            pages.append(Page(data[done : done + PAGE]))
            done += len(pages[-1].data)
        if not done:
            return -errno.EAGAIN
        self.reader.changed()
        return done

    def released(self) -> None:
        if self.reader is not None:
            self.reader.writer = None
            self.reader.changed()


def pipe(machine: Machine) -> tuple[ReadEnd, WriteEnd]:
    """Return the ends of a new pipe."""
    reader = ReadEnd(machine)
    return reader, WriteEnd(machine, reader)
