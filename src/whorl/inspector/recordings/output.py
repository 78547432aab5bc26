"""Writing a file that somebody named: it takes its place when it is whole, and only the place of a file."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from typing import BinaryIO


@contextlib.contextmanager
def written(path: str, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a file for writing; it is there when the block has ended well, with this mode unless it was there.

    If the block fails, an earlier file stays as it was. A link leads to its file. A device, a FIFO and an
    open file of /proc are written to. Raises OSError, which has the path.
    """
    try:
        place = _place_of(path)
        if place is None:
            with open(path, "wb") as file:
                yield file
        else:
            with _beside(place, mode) as file:
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
def _beside(path: str, mode: int) -> Iterator[BinaryIO]:
    """Open a new file beside a path, which is renamed to it in the end, or removed."""
    new = os.path.join(os.path.dirname(path), f".whorl-{secrets.token_hex(8)}")
    former: int | None = None
    with contextlib.suppress(FileNotFoundError):
        former = stat.S_IMODE(os.stat(path).st_mode)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        if former is not None:
            os.fchmod(descriptor, former)
        with open(descriptor, "wb") as file:
            yield file
        os.replace(new, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise
