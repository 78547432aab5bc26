"""The kernel's calls for the file system.

Most of them may block and are made in a thread. Calls whose names end in `_now` never block. They answer
from the memory of Linux, or return -EAGAIN, and then the call has to be made in a thread.

A path is of any type that `os` takes. Compiled, `open_now` and `status_now` call openat2 (RESOLVE_CACHED),
only for file systems on local disks or in memory. Uncompiled, they leave everything to the threads.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import select
import stat
from typing import TYPE_CHECKING, Any

from whorl.core.kernel.datagrams import DatagramCalls
from whorl.core.kernel.errors import negative_errno

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from whorl.core.file_system_status import FileSystemStatus

    Path = str | bytes
    Views = list[memoryview]

_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_FICLONE = 0x40049409

#: Special times for `set_times`: the present, and the time that the file has.
TIME_NOW = (1 << 63) - 1
TIME_OMIT = (1 << 63) - 2
_IN_NANOSECONDS = {TIME_NOW: (1 << 30) - 1, TIME_OMIT: (1 << 30) - 2}

#: File systems whose open and stat wait for no other machine or program, by `f_type` (man 2 statfs).
#: They are: ext, xfs, btrfs, tmpfs, overlayfs, f2fs, ramfs, squashfs, erofs, bcachefs, iso9660, vfat.
_LOCAL_TYPES = frozenset(
    {0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x794C7630, 0xF2F52010}
    | {0x858458F6, 0x73717368, 0xE0F5E1E2, 0xCA451A4E, 0x9660, 0x4D44}
)

#: The number of mounted file systems that are remembered, so that repeated mounting takes no memory.
_MOUNTS_KNOWN = 256

# Bound once: tools that look for blocking calls in a running loop replace functions of `os`.
_fstat = os.fstat

if not cython.compiled:

    def file_status_now(calls: FileCalls, path: Path, follow: bool) -> Any:
        """Return -EAGAIN: uncompiled there is no such call."""
        return -errno.EAGAIN

    def open_file_now(calls: FileCalls, path: Path) -> int:
        """Return -EAGAIN: uncompiled there is no such call."""
        return -errno.EAGAIN

    def file_content_now(calls: FileCalls, path: Path, limit: int) -> Any:
        """Return -EAGAIN: uncompiled there is no such call."""
        return -errno.EAGAIN

    def mount_of(fd: int) -> tuple[int, int] | None:
        """Return None: uncompiled, no mount is needed."""
        return None

    def read_file_now(calls: FileCalls, fd: int, size: int, offset: int) -> Any:
        """Read up to the end of the file, or all of `size`, if that is in memory."""
        data = bytearray(size)
        done = 0
        with memoryview(data) as view:
            while done < size:
                with view[done:] as rest:
                    try:
                        count = os.preadv(fd, [rest], offset + done, os.RWF_NOWAIT)
                    except (AttributeError, OverflowError):
                        return -errno.EAGAIN
                    except OSError as error:
                        return _not_now(calls, error)
                if not count:
                    break
                done += count
        return bytes(data[:done])

    def _not_now(calls: FileCalls, error: OSError) -> int:
        if error.errno == errno.ENOSYS:
            calls._reads_now = False
        return -errno.EAGAIN


def _libc() -> Any:
    from whorl.core.kernel import libc

    return libc


def _is_local(fd: int) -> bool:
    """Return whether an open file lies on a local file system, as far as can be known."""
    try:
        found = _libc().file_system("fstatfs", fd)
    except ImportError:
        found = None
    return getattr(found, "type", 0) & 0xFFFFFFFF in _LOCAL_TYPES


def _attempt(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Return the result of a call, 0 for None, or the negative error number."""
    try:
        result = call(*args, **options)
    except OSError as error:
        result = negative_errno(error)
    return 0 if result is None else result


class FileCalls(DatagramCalls):
    """The part of the kernel for files. The rules are those of `Kernel`, but these calls block."""

    def __init__(self) -> None:
        DatagramCalls.__init__(self)
        self._local_mounts: dict[Any, bool] = {}  # whether a mounted file system is local
        self._opens_now = True  # whether this kernel has openat2 with RESOLVE_CACHED, as far as is known
        self._reads_now = True  # the same for preadv2 with RWF_NOWAIT

    # Answers from memory. None of these calls blocks; after -EXDEV, call `learn_mount` first.

    def status_now(self, path: Path, follow: bool) -> Any:
        """Return a file's status (os.stat_result), if it is in memory (man 2 openat2, RESOLVE_CACHED)."""
        return file_status_now(self, path, follow)

    def content_now(self, path: Path, limit: int) -> Any:
        """Return all of a regular file, if it is in memory and at most `limit` bytes long."""
        return file_content_now(self, path, limit)

    def open_now(self, path: Path) -> int:
        """Return a descriptor to read a regular file, if all that opening needs is in memory."""
        return open_file_now(self, path)

    def read_now(self, fd: int, size: int, offset: int) -> Any:
        """Return `size` bytes, or the rest of a shorter file, if all of them are in memory.

        It never returns fewer (man 2 preadv2, RWF_NOWAIT).
        """
        if size < 0 or offset < 0 or not self._reads_now:
            return -errno.EAGAIN
        return read_file_now(self, fd, size, offset)

    def learn_mount(self, path: Path) -> None:
        """Find out whether a file lies on a local file system, for the next `_now`; this blocks.

        Without `ctypes` none is known to be local.
        """
        if not self._opens_now or not hasattr(os, "O_PATH") or len(self._local_mounts) >= _MOUNTS_KNOWN:
            return
        fd = _attempt(os.open, path, os.O_PATH | os.O_CLOEXEC)
        if fd < 0:
            return
        try:
            mount = mount_of(fd)
            if mount is not None and mount not in self._local_mounts:
                self._local_mounts[mount] = _is_local(fd)
        finally:
            os.close(fd)

    def known_mounts(self) -> dict[Any, bool]:
        """Return the mounted file systems that have been met, and whether they are local."""
        return dict(self._local_mounts)

    # Descriptors.

    def open_file(self, path: Path, flags: int, mode: int) -> int:
        """Return a new descriptor, which no child inherits (man 2 open)."""
        return int(_attempt(os.open, path, flags | os.O_CLOEXEC, mode))

    def close_fd(self, fd: int) -> int:
        """Close a descriptor of a file, letting other threads run (man 2 close)."""
        return int(_attempt(os.close, fd))

    def read_file(self, fd: int, size: int, offset: int) -> bytes | int:
        """Read at most `size` bytes at an offset; -1 is the end of the last read (man 2 pread)."""
        if offset < 0:
            return _attempt(os.read, fd, size)  # type: ignore[no-any-return]
        return _attempt(os.pread, fd, size, offset)  # type: ignore[no-any-return]

    def read_file_into(self, fd: int, views: Views, offset: int) -> int:
        """Read into several buffers; return how many bytes were read (man 2 preadv)."""
        if offset < 0:
            return int(_attempt(os.readv, fd, views))
        return int(_attempt(os.preadv, fd, views, offset))

    def write_file(self, fd: int, views: Views, offset: int) -> int:
        """Write several buffers at an offset; -1 is the end of the last write (man 2 pwritev)."""
        if offset < 0:
            return int(_attempt(os.writev, fd, views))
        return int(_attempt(os.pwritev, fd, views, offset))

    def seek_file(self, fd: int, offset: int, whence: int) -> int:
        """Move the position of a descriptor; return the new one (man 2 lseek)."""
        return int(_attempt(os.lseek, fd, offset, whence))

    def copy_range(self, target: int, source: int, offset: int, count: int) -> int:
        """Copy within the kernel from a file to a file; return how many bytes (man 2 copy_file_range)."""
        call = getattr(os, "copy_file_range", None)
        if call is None:
            return -errno.ENOSYS
        return int(_attempt(call, source, target, count, offset))

    def clone_file(self, target: int, source: int) -> int:
        """Let a file share another one's blocks (man 2 ioctl_ficlone)."""
        return int(_attempt(fcntl.ioctl, target, _FICLONE, source))

    def await_writable(self, fd: int) -> None:
        """Wait until a descriptor takes data; for copies to a non-blocking descriptor."""
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        poll.poll()

    def status_of(self, fd: int) -> Any:
        """Return the status of an open file, an os.stat_result (man 2 fstat)."""
        return _attempt(_fstat, fd)

    def is_terminal(self, fd: int) -> bool:
        """Return whether a descriptor is a terminal (man 3 isatty)."""
        return os.isatty(fd)

    def resize(self, fd: int, size: int) -> int:
        """Cut or extend a file (man 2 ftruncate)."""
        return int(_attempt(os.ftruncate, fd, size))

    def sync(self, fd: int, data_only: bool) -> int:
        """Bring a file to the disk (man 2 fsync, man 2 fdatasync)."""
        return int(_attempt(os.fdatasync if data_only else os.fsync, fd))

    # The attributes of files. `file` is a path or a descriptor.

    def status(self, path: Path, follow: bool) -> Any:
        """Return the status of a file, an os.stat_result (man 2 stat, man 2 lstat)."""
        return _attempt(os.stat, path, follow_symlinks=follow)

    def file_system(self, path: Path) -> FileSystemStatus | int:
        """Return the figures of the file system (man 2 statfs)."""
        from whorl.core.file_system_status import FileSystemStatus

        found = _libc().file_system("statfs", os.fsencode(path))
        if type(found) is int:
            return found
        return FileSystemStatus(*(getattr(found, name) for name in FileSystemStatus._fields))

    def set_times(self, file: Path | int, accessed: int, modified: int, follow: bool) -> int:
        """Set both times, in nanoseconds, or TIME_NOW, or TIME_OMIT (man 2 utimensat)."""
        libc = _libc()
        times = libc.two_times(_time(accessed), _time(modified))
        if isinstance(file, int):
            code: int = libc.call("futimens", file, times)
        else:
            flags = 0 if follow else _AT_SYMLINK_NOFOLLOW
            code = libc.call("utimensat", _AT_FDCWD, os.fsencode(file), times, flags)
        return code

    def access(self, path: Path, mode: int) -> int:
        """Return 0 if the process may read, write or execute a file, or the error (man 2 access)."""
        code: int = _libc().call("access", os.fsencode(path), mode)
        return code

    def set_mode(self, file: Path | int, mode: int) -> int:
        """Set the permissions (man 2 chmod)."""
        return int(_attempt(os.chmod, file, mode))

    def set_owner(self, file: Path | int, user: int, group: int, follow: bool) -> int:
        """Set the owner and the group; -1 leaves one as it is (man 2 chown)."""
        return int(_attempt(os.chown, file, user, group, follow_symlinks=follow))

    # Names.

    def remove_directory(self, path: Path) -> int:
        """Remove an empty directory (man 2 rmdir)."""
        return int(_attempt(os.rmdir, path))

    def remove_file(self, path: Path) -> int:
        """Remove a name (man 2 unlink)."""
        return int(_attempt(os.unlink, path))

    def make_directory(self, path: Path, mode: int) -> int:
        """Make a directory (man 2 mkdir)."""
        return int(_attempt(os.mkdir, path, mode))

    def random_name(self) -> str:
        """Return six unpredictable characters."""
        letters = "abcdefghijklmnopqrstuvwxyz0123456789"
        return "".join(letters[byte % len(letters)] for byte in os.urandom(6))

    def rename(self, path: Path, new_path: Path) -> int:
        """Give a file another name (man 2 rename)."""
        return int(_attempt(os.rename, path, new_path))

    def link(self, path: Path, new_path: Path) -> int:
        """Give a file one more name (man 2 link)."""
        return int(_attempt(os.link, path, new_path, follow_symlinks=False))

    def symlink(self, path: Path, new_path: Path) -> int:
        """Make a symbolic link (man 2 symlink)."""
        return int(_attempt(os.symlink, path, new_path))

    def read_link(self, path: Path) -> Any:
        """Return the target of a symbolic link (man 2 readlink)."""
        return _attempt(os.readlink, path)

    def real_path(self, path: Path) -> Any:
        """Return the absolute path without symbolic links; the file must exist (man 3 realpath)."""
        return _attempt(os.path.realpath, path, strict=True)

    # Directories.

    def open_directory(self, path: Path) -> Any:
        """Return an iterator over a directory's entries, like `os.scandir`; it must be closed."""
        return _attempt(os.scandir, path)

    def read_directory(self, entries: Iterator[Any], limit: int) -> Any:
        """Return at most `limit` further entries, each a name and its type, the S_IFMT part of a mode."""
        return _attempt(lambda: [(entry.name, _type_of(entry)) for entry in itertools.islice(entries, limit)])


def _time(nanoseconds: int) -> tuple[int, int]:
    if nanoseconds in _IN_NANOSECONDS:
        return 0, _IN_NANOSECONDS[nanoseconds]
    return divmod(nanoseconds, 1_000_000_000)


def _type_of(entry: os.DirEntry[Any]) -> int:
    """Return the type of a directory's entry; 0 if it is gone meanwhile."""
    if entry.is_symlink():
        return stat.S_IFLNK
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR
    if entry.is_file(follow_symlinks=False):
        return stat.S_IFREG
    try:
        kind = stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        kind = 0
    return kind
