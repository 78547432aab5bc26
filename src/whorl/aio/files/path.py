"""Paths for coroutines: `pathlib.Path`, with methods for the file system that are to be awaited."""

from __future__ import annotations

import os
import pathlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from whorl.aio.files import open as file_opening
from whorl.aio.files import os_functions, whole_file

if TYPE_CHECKING:
    from typing import Self

    from _typeshed import ReadableBuffer


class Path(pathlib.PurePosixPath):
    """A path; it is a pure path of `pathlib`, so methods without the file system work as there."""

    __slots__ = ()

    # Status.

    async def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return the status of the file."""
        return await os_functions.stat(self, follow_symlinks=follow_symlinks)

    async def lstat(self) -> os.stat_result:
        """Return the status of the file, of a symbolic link itself."""
        return await os_functions.lstat(self)

    async def exists(self) -> bool:
        """Return whether there is such a file."""
        return await os_functions.exists(self)

    async def is_file(self) -> bool:
        """Return whether it is a regular file."""
        return await os_functions.is_file(self)

    async def is_dir(self) -> bool:
        """Return whether it is a directory."""
        return await os_functions.is_dir(self)

    async def is_symlink(self) -> bool:
        """Return whether it is a symbolic link."""
        return await os_functions.is_symlink(self)

    async def readlink(self) -> Self:
        """Return the path that the symbolic link leads to."""
        return type(self)(await os_functions.readlink(self))

    async def resolve(self) -> Self:
        """Return the absolute path without symbolic links; the file must exist."""
        return type(self)(await os_functions.realpath(self))

    async def iterdir(self) -> AsyncIterator[Self]:
        """Return the paths of the directory's entries, by name."""
        for name in await os_functions.listdir(self):
            yield self / name

    # Content.

    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> file_opening.Opening[Any]:
        """Open the file, as `whorl.fs.open` does."""
        return file_opening.open(self, mode, buffering, encoding, errors, newline)

    async def read_bytes(self) -> bytes:
        """Return all of the file."""
        return await whole_file.read_bytes(self)

    async def read_text(
        self, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> str:
        """Return all of the text file."""
        return await whole_file.read_text(self, encoding, errors, newline)

    async def write_bytes(self, data: ReadableBuffer) -> int:
        """Make a file of these bytes."""
        return await whole_file.write_bytes(self, data)

    async def write_text(
        self,
        data: str,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> int:
        """Make a file of this text."""
        return await whole_file.write_text(self, data, encoding, errors, newline)

    # Changes, and names.

    async def chmod(self, mode: int) -> None:
        """Set the permissions."""
        await os_functions.chmod(self, mode)

    async def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Make a directory; with `parents` also the missing ones above it."""
        if parents:
            await os_functions.makedirs(self, mode, exist_ok)
            return
        try:
            await os_functions.mkdir(self, mode)
        except OSError:
            if not exist_ok or not await self.is_dir():
                raise

    async def touch(self, exist_ok: bool = True) -> None:
        """Make the file if it is not there, else set its times to the present."""
        async with self.open("ab" if exist_ok else "xb"):
            await os_functions.utime(self)

    async def unlink(self, missing_ok: bool = False) -> None:
        """Remove the name."""
        try:
            await os_functions.unlink(self)
        except FileNotFoundError:
            if not missing_ok:
                raise

    async def rmdir(self) -> None:
        """Remove the empty directory."""
        await os_functions.rmdir(self)

    async def rename(self, target: str | os.PathLike[str]) -> Self:
        """Give the file another name; return the new path."""
        await os_functions.rename(self, target)
        return type(self)(target)

    replace = rename

    async def symlink_to(self, target: str | os.PathLike[str]) -> None:
        """Make this a symbolic link to `target`."""
        await os_functions.symlink(target, self)

    async def hardlink_to(self, target: str | os.PathLike[str]) -> None:
        """Make this one more name of `target`."""
        await os_functions.link(target, self)
