"""The figures of a file system."""

from __future__ import annotations

from typing import NamedTuple


class FileSystemStatus(NamedTuple):
    """The figures of a file system (man 2 statfs; libuv: ``uv_statfs_t``). Sizes are in blocks."""

    type: int  #: its kind, a magic number
    bsize: int  #: the size of a block, in bytes
    blocks: int
    bfree: int
    bavail: int  #: free for those who have no privileges
    files: int  #: inodes
    ffree: int
    frsize: int  #: the size of a fragment, in bytes
