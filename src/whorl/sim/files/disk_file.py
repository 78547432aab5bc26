"""A file of a disk that a process has opened: its position and its mode."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from whorl.sim.files.file import File, Machine
from whorl.sim.files.inodes import Directory, Inode, Regular

if TYPE_CHECKING:
    from whorl.sim.files.disk import Disk


class DiskFile(File):
    """An open file or directory."""

    __slots__ = ("_disk", "inode", "position")

    def __init__(self, machine: Machine, disk: Disk, inode: Inode, flags: int) -> None:
        super().__init__(machine)
        self._disk = disk
        self.inode: Inode = inode
        self.flags = flags
        self.is_whole = True
        self.position: int = 0

    @property
    def kind(self) -> int:  # type: ignore[override]
        """The type of the file, as in `st_mode`."""
        return stat.S_IFMT(self.inode.mode)

    def read(self, limit: int) -> bytes | int:
        data = self.read_at(limit, self.position)
        if not isinstance(data, int):
            self.position += len(data)
        return data

    def write(self, data: bytes) -> int:
        if self.flags & os.O_APPEND:
            self.position = self.inode.size()
        written = self.write_at(data, self.position)
        if written > 0:
            self.position += written
        return written

    def read_at(self, limit: int, offset: int) -> bytes | int:
        """Return at most `limit` bytes from an offset on, or the negative error number (man 2 pread)."""
        inode = self.inode
        if self.flags & os.O_ACCMODE == os.O_WRONLY:
            return -errno.EBADF
        if not isinstance(inode, Regular):
            return -errno.EISDIR
        inode.accessed = self._disk.now()
        return bytes(inode.data[offset : offset + limit])

    def write_at(self, data: bytes, offset: int) -> int:
        """Write at an offset; return how many bytes there was room for, or the negative error number."""
        inode, disk = self.inode, self._disk
        if not self.may_write() or not isinstance(inode, Regular):
            return -errno.EBADF
        if disk.capacity is not None and (growth := offset + len(data) - len(inode.data)) > 0:
            lacking = growth - disk.room()
            if lacking >= len(data) > 0:
                return -errno.ENOSPC
            if lacking > 0:
                data = data[: len(data) - lacking]
        inode.write(offset, data)
        inode.touch(disk.now())
        if self.flags & (os.O_SYNC | os.O_DSYNC):
            self.sync()
        return len(data)

    def may_write(self) -> bool:
        """Return whether it was opened for writing."""
        return self.flags & os.O_ACCMODE != os.O_RDONLY

    def seek(self, offset: int, whence: int) -> int:
        """Move the position; return it, or the negative error number (man 2 lseek)."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self.position, os.SEEK_END: self.inode.size()}.get(whence)
        if base is None or base + offset < 0:
            return -errno.EINVAL
        self.position = base + offset
        return self.position

    def sync(self) -> None:
        """Bring the content, or the names, to the disk."""
        if isinstance(self.inode, Directory):
            self._disk.sync_directory(self.inode)
        elif isinstance(self.inode, Regular):
            self.inode.sync()
