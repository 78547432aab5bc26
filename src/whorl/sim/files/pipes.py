"""Pipes (man 7 pipe)."""

from __future__ import annotations

import errno
import os
import stat

from whorl.sim.files.channel import Channel
from whorl.sim.files.file import EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, File, Machine

CAPACITY = 65_536


class PipeEnd(File):
    """One end of a pipe."""

    __slots__ = ("channel",)

    kind = stat.S_IFIFO

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.channel: Channel = None  # type: ignore[assignment]  # set by `pipe`


class ReadEnd(PipeEnd):
    """The end to read from."""

    __slots__ = ()

    def readiness(self) -> int:
        return (EPOLLIN if self.channel.arrived else 0) | (EPOLLHUP if self.channel.ended else 0)

    def read(self, limit: int) -> bytes | int:
        if self.channel.arrived:
            return self.channel.take(limit)
        return b"" if self.channel.ended else -errno.EAGAIN

    def write(self, data: bytes) -> int:
        return -errno.EBADF

    def released(self) -> None:
        self.channel.receiver = None
        self.channel.arrived.clear()
        if self.channel.sender is not None:
            self.channel.sender.changed()


class WriteEnd(PipeEnd):
    """The end to write to."""

    __slots__ = ()

    def readiness(self) -> int:
        if self.channel.receiver is None:
            return EPOLLOUT | EPOLLERR
        return EPOLLOUT if self.channel.room() >= 4096 else 0

    def read(self, limit: int) -> bytes | int:
        return -errno.EBADF

    def write(self, data: bytes) -> int:
        channel = self.channel
        if channel.receiver is None:
            return -errno.EPIPE
        room = channel.room()
        if room < len(data):
            channel.was_full = True
            if room <= 0 or len(data) <= 4096:  # up to PIPE_BUF, all or nothing
                return -errno.EAGAIN
            data = data[:room]
        if data:
            channel.send(data)
        return len(data)

    def await_room(self) -> None:
        self.channel.was_full = True

    def released(self) -> None:
        self.channel.send_end()
        self.channel.sender = None


def pipe(machine: Machine) -> tuple[ReadEnd, WriteEnd]:
    """Return the ends of a new pipe."""
    reader, writer = ReadEnd(machine), WriteEnd(machine)
    reader.flags, writer.flags = os.O_RDONLY, os.O_WRONLY
    reader.channel = writer.channel = Channel(writer, reader, None, CAPACITY)
    return reader, writer
