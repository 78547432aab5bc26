"""Files by their names: reading and changing attributes; making, changing and removing names."""

from __future__ import annotations

import errno
import functools
import os
from typing import TYPE_CHECKING, Any, overload

from whorl.core.file_system_status import FileSystemStatus
from whorl.core.limits import TEMPORARY_NAMES
from whorl.handles.fs.copy import copy_file
from whorl.handles.fs.request import (
    INT,
    UINT,
    Done,
    FsRequest,
    Operation,
    Path,
    nanoseconds,
    number,
    path_of,
    run,
)

if TYPE_CHECKING:
    from whorl.core.kernel.kernel import Kernel
    from whorl.core.loop.loop import Loop

_TEMPLATE_END = 6


# Reading attributes.


@overload
def stat(loop: Loop, path: Path, callback: None = None) -> os.stat_result: ...
@overload
def stat(loop: Loop, path: Path, callback: Done[os.stat_result]) -> FsRequest: ...
def stat(loop: Loop, path: Path, callback: Done[os.stat_result] | None = None) -> Any:
    """Return the status of a file; for a symbolic link, that of its target (``uv_fs_stat``)."""
    return run(loop, _status(loop._kernel, path_of(path), True), callback)


@overload
def lstat(loop: Loop, path: Path, callback: None = None) -> os.stat_result: ...
@overload
def lstat(loop: Loop, path: Path, callback: Done[os.stat_result]) -> FsRequest: ...
def lstat(loop: Loop, path: Path, callback: Done[os.stat_result] | None = None) -> Any:
    """Return the status of a file; for a symbolic link, that of the link itself (``uv_fs_lstat``)."""
    return run(loop, _status(loop._kernel, path_of(path), False), callback)


def _status(kernel: Kernel, path: str | bytes, follow: bool) -> Operation:
    now = functools.partial(kernel.status_now, path, follow)
    return Operation(functools.partial(kernel.status, path, follow), path, now=now)


@overload
def statfs(loop: Loop, path: Path, callback: None = None) -> FileSystemStatus: ...
@overload
def statfs(loop: Loop, path: Path, callback: Done[FileSystemStatus]) -> FsRequest: ...
def statfs(loop: Loop, path: Path, callback: Done[FileSystemStatus] | None = None) -> Any:
    """Return the figures of the file system on which a file lies (``uv_fs_statfs``)."""
    plain = path_of(path)
    return run(loop, Operation(functools.partial(loop._kernel.file_system, plain), plain), callback)


@overload
def access(loop: Loop, path: Path, mode: int, callback: None = None) -> int: ...
@overload
def access(loop: Loop, path: Path, mode: int, callback: Done[int]) -> FsRequest: ...
def access(loop: Loop, path: Path, mode: int, callback: Done[int] | None = None) -> Any:
    """Check whether a file may be read (os.R_OK), written, executed; 0 or an error (``uv_fs_access``)."""
    plain, mode = path_of(path), number(mode, 0, INT, "a mode")
    return run(loop, Operation(functools.partial(loop._kernel.access, plain, mode), plain), callback)


# Changing attributes.


@overload
def utime(loop: Loop, path: Path, accessed: float, modified: float, callback: None = None) -> int: ...
@overload
def utime(loop: Loop, path: Path, accessed: float, modified: float, callback: Done[int]) -> FsRequest: ...
def utime(loop: Loop, path: Path, accessed: float, modified: float, callback: Done[int] | None = None) -> Any:
    """Set the times of a file, in seconds (``uv_fs_utime``).

    Infinity is the present, NaN leaves a time as it is. The result is 0.
    """
    return run(loop, _times(loop._kernel, path, accessed, modified, True), callback)


@overload
def lutime(loop: Loop, path: Path, accessed: float, modified: float, callback: None = None) -> int: ...
@overload
def lutime(loop: Loop, path: Path, accessed: float, modified: float, callback: Done[int]) -> FsRequest: ...
def lutime(
    loop: Loop, path: Path, accessed: float, modified: float, callback: Done[int] | None = None
) -> Any:
    """Set the times of a symbolic link itself (``uv_fs_lutime``)."""
    return run(loop, _times(loop._kernel, path, accessed, modified, False), callback)


def _times(kernel: Kernel, path: Path, accessed: float, modified: float, follow: bool) -> Operation:
    plain = path_of(path)
    times = nanoseconds(accessed), nanoseconds(modified)
    return Operation(functools.partial(kernel.set_times, plain, *times, follow), plain)


@overload
def chmod(loop: Loop, path: Path, mode: int, callback: None = None) -> int: ...
@overload
def chmod(loop: Loop, path: Path, mode: int, callback: Done[int]) -> FsRequest: ...
def chmod(loop: Loop, path: Path, mode: int, callback: Done[int] | None = None) -> Any:
    """Set the permissions of a file; the result is 0 (``uv_fs_chmod``)."""
    plain, mode = path_of(path), number(mode, 0, INT, "a mode")
    return run(loop, Operation(functools.partial(loop._kernel.set_mode, plain, mode), plain), callback)


@overload
def chown(loop: Loop, path: Path, user: int, group: int, callback: None = None) -> int: ...
@overload
def chown(loop: Loop, path: Path, user: int, group: int, callback: Done[int]) -> FsRequest: ...
def chown(loop: Loop, path: Path, user: int, group: int, callback: Done[int] | None = None) -> Any:
    """Set the owner and group of a file, -1: as they were; the result is 0 (``uv_fs_chown``)."""
    return run(loop, _owner(loop._kernel, path, user, group, True), callback)


@overload
def lchown(loop: Loop, path: Path, user: int, group: int, callback: None = None) -> int: ...
@overload
def lchown(loop: Loop, path: Path, user: int, group: int, callback: Done[int]) -> FsRequest: ...
def lchown(loop: Loop, path: Path, user: int, group: int, callback: Done[int] | None = None) -> Any:
    """Set the owner and group of a symbolic link itself (``uv_fs_lchown``)."""
    return run(loop, _owner(loop._kernel, path, user, group, False), callback)


def _owner(kernel: Kernel, path: Path, user: int, group: int, follow: bool) -> Operation:
    plain = path_of(path)
    ids = number(user, -1, UINT, "a user"), number(group, -1, UINT, "a group")
    return Operation(functools.partial(kernel.set_owner, plain, *ids, follow), plain)


# Names.


@overload
def unlink(loop: Loop, path: Path, callback: None = None) -> int: ...
@overload
def unlink(loop: Loop, path: Path, callback: Done[int]) -> FsRequest: ...
def unlink(loop: Loop, path: Path, callback: Done[int] | None = None) -> Any:
    """Remove a name; the result is 0 (``uv_fs_unlink``)."""
    plain = path_of(path)
    return run(loop, Operation(functools.partial(loop._kernel.remove_file, plain), plain), callback)


@overload
def rmdir(loop: Loop, path: Path, callback: None = None) -> int: ...
@overload
def rmdir(loop: Loop, path: Path, callback: Done[int]) -> FsRequest: ...
def rmdir(loop: Loop, path: Path, callback: Done[int] | None = None) -> Any:
    """Remove an empty directory; the result is 0 (``uv_fs_rmdir``)."""
    plain = path_of(path)
    return run(loop, Operation(functools.partial(loop._kernel.remove_directory, plain), plain), callback)


@overload
def mkdir(loop: Loop, path: Path, mode: int = ..., callback: None = None) -> int: ...
@overload
def mkdir(loop: Loop, path: Path, mode: int = ..., *, callback: Done[int]) -> FsRequest: ...
def mkdir(loop: Loop, path: Path, mode: int = 0o777, callback: Done[int] | None = None) -> Any:
    """Make a directory; the result is 0 (``uv_fs_mkdir``)."""
    plain, mode = path_of(path), number(mode, 0, INT, "a mode")
    return run(loop, Operation(functools.partial(loop._kernel.make_directory, plain, mode), plain), callback)


@overload
def mkdtemp(loop: Loop, template: Path, callback: None = None) -> str | bytes: ...
@overload
def mkdtemp(loop: Loop, template: Path, callback: Done[str | bytes]) -> FsRequest: ...
def mkdtemp(loop: Loop, template: Path, callback: Done[str | bytes] | None = None) -> Any:
    """Make a directory with a new name (``uv_fs_mkdtemp``).

    `template` ends with XXXXXX; the result is its path.
    """
    kernel, plain = loop._kernel, path_of(template)

    def make(path: str | bytes) -> int:
        return kernel.make_directory(path, 0o700)

    operation = Operation(
        lambda: _temporary(kernel, plain, make)[0], plain, dispose=kernel.remove_directory, repeats=False
    )
    return run(loop, operation, callback)


@overload
def mkstemp(loop: Loop, template: Path, callback: None = None) -> tuple[int, str | bytes]: ...
@overload
def mkstemp(loop: Loop, template: Path, callback: Done[tuple[int, str | bytes]]) -> FsRequest: ...
def mkstemp(loop: Loop, template: Path, callback: Done[tuple[int, str | bytes]] | None = None) -> Any:
    """Make a file with a new name; `template` ends with XXXXXX (``uv_fs_mkstemp``).

    The result is a descriptor to read and write it, and its path.
    """
    kernel, plain = loop._kernel, path_of(template)

    def make(path: str | bytes) -> int:
        return kernel.open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)

    def dispose(result: tuple[int, str | bytes]) -> None:
        kernel.close_fd(result[0])
        kernel.remove_file(result[1])

    def call() -> Any:
        path, fd = _temporary(kernel, plain, make)
        return path if fd < 0 else (fd, path)

    return run(loop, Operation(call, plain, dispose=dispose, repeats=False), callback)


def _temporary(kernel: Kernel, template: str | bytes, make: Any) -> tuple[Any, int]:
    """Return a new path and the result of `make` for it, or the negative error number twice."""
    text = os.fsdecode(template)
    if not text.endswith("X" * _TEMPLATE_END):
        return -errno.EINVAL, -errno.EINVAL
    made = make_temporary(kernel, text[: len(text) - _TEMPLATE_END], "", isinstance(template, bytes), make)
    return (made, made) if isinstance(made, int) else made


def make_temporary(kernel: Kernel, before: str, after: str, is_bytes: bool, make: Any) -> Any:
    """Return a new path, with six characters in the middle, and the result of `make`, or the error number."""
    made = -errno.EEXIST
    for _ in range(TEMPORARY_NAMES):
        path = before + kernel.random_name() + after
        plain = os.fsencode(path) if is_bytes else path
        made = make(plain)
        if made >= 0:
            return plain, made
        if made not in (-errno.EEXIST, -errno.EINTR):
            break
    return made


@overload
def rename(loop: Loop, path: Path, new_path: Path, callback: None = None) -> int: ...
@overload
def rename(loop: Loop, path: Path, new_path: Path, callback: Done[int]) -> FsRequest: ...
def rename(loop: Loop, path: Path, new_path: Path, callback: Done[int] | None = None) -> Any:
    """Give a file another name; the result is 0 (``uv_fs_rename``)."""
    return run(loop, _pair(loop._kernel.rename, path, new_path), callback)


@overload
def link(loop: Loop, path: Path, new_path: Path, callback: None = None) -> int: ...
@overload
def link(loop: Loop, path: Path, new_path: Path, callback: Done[int]) -> FsRequest: ...
def link(loop: Loop, path: Path, new_path: Path, callback: Done[int] | None = None) -> Any:
    """Give a file one more name; the result is 0 (``uv_fs_link``)."""
    return run(loop, _pair(loop._kernel.link, path, new_path), callback)


@overload
def symlink(loop: Loop, path: Path, new_path: Path, flags: int = ..., callback: None = None) -> int: ...
@overload
def symlink(
    loop: Loop, path: Path, new_path: Path, flags: int = ..., *, callback: Done[int]
) -> FsRequest: ...
def symlink(loop: Loop, path: Path, new_path: Path, flags: int = 0, callback: Done[int] | None = None) -> Any:
    """Make a symbolic link at `new_path`; `flags` mean something on Windows only (``uv_fs_symlink``)."""
    number(flags, 0, INT, "flags")
    return run(loop, _pair(loop._kernel.symlink, path, new_path), callback)


def _pair(call: Any, path: Path, new_path: Path) -> Operation:
    plain, new_plain = path_of(path), path_of(new_path)
    return Operation(functools.partial(call, plain, new_plain), plain, new_plain)


@overload
def readlink(loop: Loop, path: Path, callback: None = None) -> str | bytes: ...
@overload
def readlink(loop: Loop, path: Path, callback: Done[str | bytes]) -> FsRequest: ...
def readlink(loop: Loop, path: Path, callback: Done[str | bytes] | None = None) -> Any:
    """Return the target of a symbolic link (``uv_fs_readlink``)."""
    plain = path_of(path)
    return run(loop, Operation(functools.partial(loop._kernel.read_link, plain), plain), callback)


@overload
def realpath(loop: Loop, path: Path, callback: None = None) -> str | bytes: ...
@overload
def realpath(loop: Loop, path: Path, callback: Done[str | bytes]) -> FsRequest: ...
def realpath(loop: Loop, path: Path, callback: Done[str | bytes] | None = None) -> Any:
    """Return the absolute path of a file that exists, without symbolic links (``uv_fs_realpath``)."""
    plain = path_of(path)
    return run(loop, Operation(functools.partial(loop._kernel.real_path, plain), plain), callback)


@overload
def copyfile(loop: Loop, path: Path, new_path: Path, flags: int = ..., callback: None = None) -> int: ...
@overload
def copyfile(
    loop: Loop, path: Path, new_path: Path, flags: int = ..., *, callback: Done[int]
) -> FsRequest: ...
def copyfile(
    loop: Loop, path: Path, new_path: Path, flags: int = 0, callback: Done[int] | None = None
) -> Any:
    """Copy the content and the permissions of a file; the result is 0 (``uv_fs_copyfile``).

    `flags`: COPYFILE_EXCL, COPYFILE_FICLONE, COPYFILE_FICLONE_FORCE.
    """
    plain, new_plain, flags = path_of(path), path_of(new_path), number(flags, 0, INT, "flags")
    call = functools.partial(copy_file, loop._kernel, plain, new_plain, flags)
    return run(loop, Operation(call, plain, new_plain), callback)
