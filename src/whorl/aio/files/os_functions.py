"""Files by their names, for coroutines: the functions that users of `os` and `os.path` know."""

from __future__ import annotations

import errno
import functools
import os
import stat as modes
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from whorl.aio.files.await_request import await_call, await_operation, next_turn, running_loop
from whorl.core.file_system_status import FileSystemStatus
from whorl.handles import fs
from whorl.handles.fs.directories import DirentType
from whorl.handles.fs.request import Operation, Path, path_of


class Entry(NamedTuple):
    """An entry of a directory: a symbolic link counts as itself, not as the file that it leads to."""

    name: Any
    path: Any
    type: DirentType

    def is_dir(self) -> bool:
        """Return whether it is a directory."""
        return self.type == DirentType.DIR

    def is_file(self) -> bool:
        """Return whether it is a regular file."""
        return self.type == DirentType.FILE

    def is_symlink(self) -> bool:
        """Return whether it is a symbolic link."""
        return self.type == DirentType.LINK

    def __fspath__(self) -> Any:
        return self.path


# Status.


async def stat(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
    """Return the status of a file (os.stat)."""
    plain = path_of(path)
    found = running_loop()._kernel.status_now(plain, follow_symlinks)
    if found.__class__ is not int:
        await next_turn()
        return found  # type: ignore[no-any-return]
    return await await_call(fs.stat if follow_symlinks else fs.lstat, plain)  # type: ignore[no-any-return]


async def lstat(path: Path) -> os.stat_result:
    """Return the status of a file, of a symbolic link itself (os.lstat)."""
    return await stat(path, follow_symlinks=False)


async def exists(path: Path) -> bool:
    """Return whether there is such a file (os.path.exists)."""
    return await _mode(path) != 0


async def is_file(path: Path) -> bool:
    """Return whether there is such a regular file (os.path.isfile)."""
    return modes.S_ISREG(await _mode(path))


async def is_dir(path: Path) -> bool:
    """Return whether there is such a directory (os.path.isdir)."""
    return modes.S_ISDIR(await _mode(path))


async def is_symlink(path: Path) -> bool:
    """Return whether there is such a symbolic link (os.path.islink)."""
    return modes.S_ISLNK(await _mode(path, follow_symlinks=False))


async def _mode(path: Path, follow_symlinks: bool = True) -> int:
    """Return the type and permissions of a file, 0 if there is none."""
    running_loop()
    try:
        return (await stat(path, follow_symlinks=follow_symlinks)).st_mode
    except (OSError, ValueError):
        return 0


async def access(path: Path, mode: int) -> bool:
    """Return whether the process may read (os.R_OK), write or execute a file (os.access)."""
    try:
        await await_call(fs.access, path, mode)
    except OSError:
        return False
    return True


async def statfs(path: Path) -> FileSystemStatus:
    """Return the status of the file system on which a file lies."""
    return await await_call(fs.statfs, path)  # type: ignore[no-any-return]


# Changes.


async def chmod(path: Path, mode: int) -> None:
    """Set the permissions of a file (os.chmod)."""
    await await_call(fs.chmod, path, mode)


async def chown(path: Path, uid: int, gid: int, *, follow_symlinks: bool = True) -> None:
    """Set the owner and the group of a file, -1: unchanged (os.chown)."""
    await await_call(fs.chown if follow_symlinks else fs.lchown, path, uid, gid)


async def utime(
    path: Path,
    times: tuple[float, float] | None = None,
    *,
    ns: tuple[int, int] | None = None,
    follow_symlinks: bool = True,
) -> None:
    """Set the times of a file, in seconds or in nanoseconds, to the present if none is given (os.utime)."""
    loop, plain = running_loop(), path_of(path)
    if times is not None and ns is not None:
        raise ValueError("utime: you may specify either 'times' or 'ns' but not both")
    if ns is not None:
        accessed, modified = map(int, ns)
        call = functools.partial(loop._kernel.set_times, plain, accessed, modified, follow_symlinks)
        await await_operation(loop, Operation(call, plain))
    else:
        given = (float("inf"), float("inf")) if times is None else times
        await await_call(fs.utime if follow_symlinks else fs.lutime, plain, *given)


# Names.


async def mkdir(path: Path, mode: int = 0o777) -> None:
    """Make a directory (os.mkdir)."""
    await await_call(fs.mkdir, path, mode)


async def makedirs(path: Path, mode: int = 0o777, exist_ok: bool = False) -> None:
    """Make a directory, and those above it that are missing (os.makedirs)."""
    plain = path_of(path)
    try:
        await await_call(fs.mkdir, plain, mode)
    except FileNotFoundError:
        parent = os.path.dirname(plain.rstrip("/") if isinstance(plain, str) else plain.rstrip(b"/"))
        if not parent or parent == plain:
            raise
        await makedirs(parent, exist_ok=True)
        await makedirs(plain, mode, exist_ok)
    except OSError:
        if not exist_ok or not await is_dir(plain):
            raise


async def remove(path: Path) -> None:
    """Remove a name (os.remove)."""
    await await_call(fs.unlink, path)


unlink = remove


async def rmdir(path: Path) -> None:
    """Remove an empty directory (os.rmdir)."""
    await await_call(fs.rmdir, path)


async def rename(path: Path, new_path: Path) -> None:
    """Give a file another name, which may be that of an existing file (os.rename)."""
    await await_call(fs.rename, path, new_path)


replace = rename


async def link(path: Path, new_path: Path) -> None:
    """Give a file one more name (os.link)."""
    await await_call(fs.link, path, new_path)


async def symlink(target: Path, path: Path) -> None:
    """Make a symbolic link at `path` (os.symlink)."""
    await await_call(fs.symlink, target, path)


async def readlink(path: Path) -> Any:
    """Return the path that a symbolic link leads to (os.readlink)."""
    return await await_call(fs.readlink, path)


async def realpath(path: Path) -> Any:
    """Return the absolute path of an existing file, without symbolic links (os.path.realpath, strict)."""
    return await await_call(fs.realpath, path)


async def copyfile(path: Path, new_path: Path, flags: int = 0) -> None:
    """Copy the content and the permissions of a file; `flags` are those of `whorl.handles.fs.copyfile`."""
    await await_call(fs.copyfile, path, new_path, flags)


# Directories.


async def scandir(path: Path = ".") -> list[Entry]:
    """Return the entries of a directory, by name."""
    plain: Any = path_of(path)
    found = await await_call(fs.scandir, plain)
    return [Entry(entry.name, os.path.join(plain, entry.name), entry.type) for entry in found]


async def listdir(path: Path = ".") -> list[Any]:
    """Return the names in a directory, in order (os.listdir)."""
    return [entry.name for entry in await await_call(fs.scandir, path)]


async def walk(top: Path) -> AsyncIterator[tuple[Any, list[Any], list[Any]]]:
    """Return the directories below `top`, each with the names of its directories and its files (os.walk).

    Symbolic links count as files. Unreadable directories are left out; names that are taken out of the list
    of directories are not entered.
    """
    plain: Any = path_of(top)
    try:
        entries = await scandir(plain)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise
        return
    directories = [entry.name for entry in entries if entry.is_dir()]
    yield plain, directories, [entry.name for entry in entries if not entry.is_dir()]
    for name in directories:
        async for row in walk(os.path.join(plain, name)):
            yield row
