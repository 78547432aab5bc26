"""The entries of directories: all at once, or some at a time."""

from __future__ import annotations

import enum
import errno
import functools
import os
import stat
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from whorl.core.kernel.errors import os_error
from whorl.handles.fs.request import LONG, Done, FsRequest, Operation, Path, number, path_of, run

if TYPE_CHECKING:
    from typing import Self

    from whorl.core.kernel.kernel import Kernel
    from whorl.core.loop.loop import Loop


class DirentType(enum.IntEnum):
    """The type of an entry (libuv: ``uv_dirent_type_t``)."""

    UNKNOWN = 0
    FILE = 1
    DIR = 2
    LINK = 3
    FIFO = 4
    SOCKET = 5
    CHAR = 6
    BLOCK = 7


_TYPES = {
    stat.S_IFREG: DirentType.FILE,
    stat.S_IFDIR: DirentType.DIR,
    stat.S_IFLNK: DirentType.LINK,
    stat.S_IFIFO: DirentType.FIFO,
    stat.S_IFSOCK: DirentType.SOCKET,
    stat.S_IFCHR: DirentType.CHAR,
    stat.S_IFBLK: DirentType.BLOCK,
}


class Dirent(NamedTuple):
    """An entry of a directory (libuv: ``uv_dirent_t``); its name is bytes if the directory's was."""

    name: str | bytes
    type: DirentType


class Dir:
    """An open directory (libuv: ``uv_dir_t``); iterated, it reads and blocks."""

    __slots__ = ("_entries", "_kernel", "_lock", "path")

    def __init__(self, kernel: Kernel, path: str | bytes, entries: Any) -> None:
        self.path: str | bytes = path
        self._kernel = kernel
        self._entries = entries  # None when it is closed
        self._lock = threading.Lock()  # The C library frees what another thread may be reading.

    def __iter__(self) -> Iterator[Dirent]:
        return self

    def __next__(self) -> Dirent:
        found = self._read(1)
        if isinstance(found, int):
            raise os_error(found)
        if not found:
            raise StopIteration
        return found[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._close()

    def _read(self, limit: int) -> list[Dirent] | int:
        with self._lock:
            if self._entries is None:
                return -errno.EBADF
            found = self._kernel.read_directory(self._entries, limit)
            return found if isinstance(found, int) else _named(found)

    def _close(self) -> int:
        with self._lock:
            if self._entries is None:
                return -errno.EBADF
            self._entries.close()
            self._entries = None
            return 0

    def __repr__(self) -> str:
        return f"<Dir {self.path!r}{' closed' if self._entries is None else ''}>"


def _named(rows: list[tuple[Any, int]]) -> list[Dirent]:
    return [Dirent(name, _TYPES.get(kind, DirentType.UNKNOWN)) for name, kind in rows]


@overload
def scandir(loop: Loop, path: Path, callback: None = None) -> Iterator[Dirent]: ...
@overload
def scandir(loop: Loop, path: Path, callback: Done[Iterator[Dirent]]) -> FsRequest: ...
def scandir(loop: Loop, path: Path, callback: Done[Iterator[Dirent]] | None = None) -> Any:
    """Iterate over a directory's entries, sorted by name, without ``.`` and ``..`` (``uv_fs_scandir``)."""
    plain = path_of(path)
    return run(loop, Operation(functools.partial(_scan, loop._kernel, plain), plain), callback)


def _scan(kernel: Kernel, path: str | bytes) -> Iterator[Dirent] | int:
    directory = _open(kernel, path)
    if isinstance(directory, int):
        return directory
    with directory:
        found = directory._read(LONG)
    return found if isinstance(found, int) else iter(sorted(found, key=lambda entry: os.fsencode(entry.name)))


@overload
def opendir(loop: Loop, path: Path, callback: None = None) -> Dir: ...
@overload
def opendir(loop: Loop, path: Path, callback: Done[Dir]) -> FsRequest: ...
def opendir(loop: Loop, path: Path, callback: Done[Dir] | None = None) -> Any:
    """Open a directory, which must be closed by `closedir` or `with` (``uv_fs_opendir``)."""
    plain = path_of(path)
    operation = Operation(functools.partial(_open, loop._kernel, plain), plain, dispose=Dir._close)
    return run(loop, operation, callback)


def _open(kernel: Kernel, path: str | bytes) -> Dir | int:
    entries = kernel.open_directory(path)
    return entries if isinstance(entries, int) else Dir(kernel, path, entries)


@overload
def readdir(loop: Loop, directory: Dir, count: int = ..., callback: None = None) -> list[Dirent]: ...
@overload
def readdir(loop: Loop, directory: Dir, count: int = ..., *, callback: Done[list[Dirent]]) -> FsRequest: ...
def readdir(loop: Loop, directory: Dir, count: int = 64, callback: Done[list[Dirent]] | None = None) -> Any:
    """Read at most `count` further entries in no order, none at the end (``uv_fs_readdir``)."""
    call = functools.partial(_directory(directory)._read, number(count, 1, LONG, "a count"))
    return run(loop, Operation(call, directory.path), callback)


@overload
def closedir(loop: Loop, directory: Dir, callback: None = None) -> int: ...
@overload
def closedir(loop: Loop, directory: Dir, callback: Done[int]) -> FsRequest: ...
def closedir(loop: Loop, directory: Dir, callback: Done[int] | None = None) -> Any:
    """Close a directory; the result is 0 (``uv_fs_closedir``)."""
    return run(loop, Operation(_directory(directory)._close, directory.path), callback)


def _directory(directory: Dir) -> Dir:
    if not isinstance(directory, Dir):
        raise TypeError(f"a Dir was expected, got {directory!r}")
    return directory
