"""Writing a file that somebody named: it takes its place when it is whole, and only the place of a file."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from typing import BinaryIO

#: Why no file can be made beside another one, or take its place: by the folder's rights, or by a mount.
_NOT_REPLACED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY)


@contextlib.contextmanager
def written(path: str, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a file for writing; it is there when the block has ended well, with this mode unless it was there.

    If the block fails, an earlier file stays as it was. A link leads to its file. A device, a FIFO and an
    open file of /proc are written to. So is a file that cannot be replaced, when the content is whole. Raises
    OSError, which has the path.
    """
    try:
        place = _place_of(path)
        if place is None:
            with open(path, "wb") as file:
                yield file
        else:
            with _whole(place, mode) as file:
                yield file
    except OSError as error:
        raise error if error.errno is None else OSError(error.errno, error.strerror, path) from None


def _place_of(path: str) -> str | None:
    """Return where the file of a path lies, or will lie; None if that is no file that can be replaced."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
    while os.path.islink(path):
        folder = os.path.realpath(os.path.dirname(path))
        if folder.startswith("/proc/"):
            return None  # It is the output of a shell, which has it open.
        path = os.path.join(folder, os.readlink(path))
    return path


@contextlib.contextmanager
def _whole(path: str, mode: int) -> Iterator[BinaryIO]:
    """Open a new file, which takes the place of a path in the end.

    Where it cannot, an earlier file of that path gets its content.
    """
    former: int | None = None
    with contextlib.suppress(FileNotFoundError):
        former = stat.S_IMODE(os.stat(path).st_mode)
    new = os.path.join(os.path.dirname(path), f".whorl-{secrets.token_hex(8)}")
    descriptor: int | None = None
    try:
        descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except OSError as error:
        if former is None or error.errno not in _NOT_REPLACED:
            raise
    if descriptor is None:
        with _opened_for_copy(path) as earlier, tempfile.TemporaryFile() as file:
            yield file
            _copy(file, earlier)
        return
    try:
        if former is not None:
            os.fchmod(descriptor, former)
        with open(descriptor, "w+b") as file:
            yield file
            file.flush()
            _replace(new, file, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise


def _replace(new: str, file: BinaryIO, path: str) -> None:
    """Rename a new file, or copy it where another one cannot be replaced: in a mount of its own, say."""
    try:
        os.replace(new, path)
    except OSError as error:
        if error.errno not in _NOT_REPLACED:
            raise
        with _opened_for_copy(path) as earlier:
            _copy(file, earlier)
        os.unlink(new)


def _opened_for_copy(path: str) -> BinaryIO:
    """Open a file that is there for writing, and leave its content as it is."""
    return open(os.open(path, os.O_WRONLY | os.O_CLOEXEC), "wb")


def _copy(file: BinaryIO, earlier: BinaryIO) -> None:
    """Put the content of a file into another one, in place of what that has."""
    file.seek(0)
    shutil.copyfileobj(file, earlier)
    earlier.truncate()
