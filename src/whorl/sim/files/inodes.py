"""The files, directories and links of a disk, and how much of each survives a power cut.

A write reaches the memory of the system. `sync` brings it to the disk. After a power cut, each sector that
was written since is old or new.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whorl.sim.chance.decisions import Stream

#: A disk writes a sector as a whole, or not at all.
SECTOR = 512


class Inode:
    """A file of any type."""

    __slots__ = ("accessed", "changed", "group", "links", "mode", "modified", "number", "owner")

    def __init__(self, number: int, mode: int, now: int) -> None:
        self.number: int = number
        self.mode: int = mode
        self.links: int = 0
        self.owner: int = 0
        self.group: int = 0
        self.accessed: int = now  # in nanoseconds since 1970, as the next two
        self.modified: int = now
        self.changed: int = now

    def size(self) -> int:
        """Return the size in bytes."""
        return 0

    def touch(self, now: int) -> None:
        """Note a change of the content."""
        self.modified = self.changed = now

    def status(self) -> os.stat_result:
        """Return the status, as `os.stat` does."""
        size, times = self.size(), (self.accessed, self.modified, self.changed)
        plain = [self.mode, self.number, 1, self.links, self.owner, self.group, size]
        blocks = -(-size // SECTOR)
        whole, exact = [time // 10**9 for time in times], [time / 1e9 for time in times]
        return os.stat_result([*plain, *whole, *exact, *times, 4096, blocks, 0])


class Regular(Inode):
    """A regular file: its content as programs read it, and as the disk has it."""

    __slots__ = ("_kept", "data", "unsynced")

    def __init__(self, number: int, mode: int, now: int) -> None:
        super().__init__(number, stat.S_IFREG | mode, now)
        self.data: bytearray = bytearray()
        self.unsynced: set[int] = set()  # the sectors that were written since the last sync
        self._kept = bytearray()  # what the disk has

    def size(self) -> int:
        return len(self.data)

    def write(self, offset: int, content: bytes) -> None:
        """Write at an offset; a gap before it is filled with zeros."""
        if not content:
            return
        data, end = self.data, offset + len(content)
        first = min(offset, len(data))
        if len(data) < offset:
            data.extend(bytes(offset - len(data)))
        data[offset:end] = content
        self.unsynced.update(range(first // SECTOR, (end - 1) // SECTOR + 1))

    def resize(self, size: int) -> None:
        """Cut the file, or extend it with zeros."""
        data = self.data
        if size < len(data):
            del data[size:]
        else:
            self.unsynced.update(range(len(data) // SECTOR, -(-size // SECTOR)))
            data.extend(bytes(size - len(data)))

    def sync(self) -> None:
        """Bring the content to the disk (man 2 fsync)."""
        for sector in sorted(self.unsynced):
            self._keep(sector)
        kept, size = self._kept, len(self.data)
        del kept[size:]
        kept.extend(bytes(size - len(kept)))
        self.unsynced.clear()

    def fail_sync(self) -> None:
        """Fail to bring the content to the disk: no later sync tries it again, as in Linux."""
        self.unsynced.clear()

    def _keep(self, sector: int) -> None:
        begin = sector * SECTOR
        piece, kept = self.data[begin : begin + SECTOR], self._kept
        if piece:
            kept.extend(bytes(max(0, begin - len(kept))))
            kept[begin : begin + len(piece)] = piece

    def lose_power(self, chance: Stream, torn: float) -> None:
        """Have the content of the disk again, and with probability `torn` some of what was not synced."""
        if self.unsynced and chance.happens(torn):
            for sector in sorted(self.unsynced):
                if chance.happens(0.5):
                    self._keep(sector)
        if len(self.data) < len(self._kept) and chance.happens(torn):
            del self._kept[len(self.data) :]  # The file was cut, and the disk knows its new size.
        self.data = bytearray(self._kept)
        self.unsynced.clear()


class Directory(Inode):
    """A directory: its names as programs see them, and as the disk has them."""

    __slots__ = ("entries", "kept")

    def __init__(self, number: int, mode: int, now: int) -> None:
        super().__init__(number, stat.S_IFDIR | mode, now)
        self.entries: dict[str, Inode] = {}
        self.kept: dict[str, Inode] = {}

    def size(self) -> int:
        return 4096


class Link(Inode):
    """A symbolic link."""

    __slots__ = ("target",)

    def __init__(self, number: int, target: str, now: int) -> None:
        super().__init__(number, stat.S_IFLNK | 0o777, now)
        self.target: str = target

    def size(self) -> int:
        return len(self.target)


class SocketName(Inode):
    """The name of a UNIX socket."""

    __slots__ = ()

    def __init__(self, number: int, mode: int, now: int) -> None:
        super().__init__(number, stat.S_IFSOCK | mode, now)
