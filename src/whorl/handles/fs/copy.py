"""Copies from file to file: by the kernel, by shared blocks, or piece by piece."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from whorl.core.limits import COPY_SIZE, SENDFILE_SIZE

if TYPE_CHECKING:
    from whorl.core.kernel.kernel import Kernel

#: The flags of `copyfile` (libuv: ``UV_FS_COPYFILE_EXCL`` and so on).
COPYFILE_EXCL = 1  #: fail if there is such a file
COPYFILE_FICLONE = 2  #: share the blocks if the file system can
COPYFILE_FICLONE_FORCE = 4  #: share the blocks, or fail

#: The errors of the kernel's ways of copying for pairs of files that they cannot serve.
_NOT_LIKE_THIS = (
    -errno.EINVAL,
    -errno.EIO,
    -errno.ENOTSOCK,
    -errno.EXDEV,
    -errno.ENOSYS,
    -errno.EOPNOTSUPP,
    -errno.EBADF,  # a target that is opened for appending
    -errno.EPERM,
    -errno.ETXTBSY,
    -errno.EOVERFLOW,
)


def send(kernel: Kernel, target: int, source: int, offset: int, length: int) -> int:
    """Copy at most `length` bytes in one step; return how many, or the negative error number."""
    sent = kernel.copy_range(target, source, offset, min(length, SENDFILE_SIZE))
    if sent > 0 or sent == -errno.EINTR:
        return sent
    if sent < 0:
        sent = kernel.sendfile(target, source, offset, min(length, SENDFILE_SIZE))
        if sent not in _NOT_LIKE_THIS:
            return sent
    # There was nothing to copy, or the size of the file is unknown, as in /proc.
    return _send_piecewise(kernel, target, source, offset, length)


def _send_piecewise(kernel: Kernel, target: int, source: int, offset: int, length: int) -> int:
    total = 0
    while total < length:
        piece = kernel.read_file(source, min(length - total, COPY_SIZE), offset + total)
        if isinstance(piece, int):
            if piece == -errno.EINTR:
                continue
            return total or piece
        if not piece:
            break
        code = _write_piece(kernel, target, piece)
        if code < 0:
            return total or code
        total += len(piece)
    return total


def _write_piece(kernel: Kernel, target: int, piece: bytes) -> int:
    """Write a whole piece; return 0 or the negative error number."""
    with memoryview(piece) as view:
        done = 0
        while done < len(piece):
            with view[done:] as rest:
                written = kernel.write_file(target, [rest], -1)
            if written == -errno.EAGAIN:
                kernel.await_writable(target)
            elif written < 0 and written != -errno.EINTR:
                return written
            done += max(written, 0)
    return 0


def copy_file(kernel: Kernel, path: str | bytes, new_path: str | bytes, flags: int) -> int:
    """Copy the content and the permissions of a file; return 0 or the negative error number."""
    if flags & ~(COPYFILE_EXCL | COPYFILE_FICLONE | COPYFILE_FICLONE_FORCE):
        return -errno.EINVAL
    source = _open(kernel, path, os.O_RDONLY, 0)
    if source < 0:
        return source
    try:
        return _copy_to(kernel, source, new_path, flags)
    finally:
        kernel.close_fd(source)


def _copy_to(kernel: Kernel, source: int, new_path: str | bytes, flags: int) -> int:
    status = kernel.status_of(source)
    if isinstance(status, int):
        return status
    exclusive = os.O_EXCL if flags & COPYFILE_EXCL else 0
    target = _open(kernel, new_path, os.O_WRONLY | os.O_CREAT | exclusive, status.st_mode & 0o7777)
    if target < 0:
        return target
    code = -errno.EIO
    try:
        there = kernel.status_of(target)
        if isinstance(there, int):
            code = there
        elif (there.st_dev, there.st_ino) == (status.st_dev, status.st_ino):
            code = 0  # A file is a copy of itself.
        else:
            code = _fill(kernel, target, source, status, flags)
    finally:
        closed = kernel.close_fd(target)
        code = code or (closed if closed != -errno.EINTR else 0)
        if code:
            kernel.remove_file(new_path)
    return code


def _fill(kernel: Kernel, target: int, source: int, status: os.stat_result, flags: int) -> int:
    code = kernel.resize(target, 0) or kernel.set_mode(target, status.st_mode & 0o7777)
    if code:
        return code
    if flags & (COPYFILE_FICLONE | COPYFILE_FICLONE_FORCE):
        code = kernel.clone_file(target, source)
        if code == 0 or flags & COPYFILE_FICLONE_FORCE:
            return code
    done = 0
    while True:
        sent = send(kernel, target, source, done, SENDFILE_SIZE)
        if sent == 0:
            return 0
        if sent < 0 and sent != -errno.EINTR:
            return sent
        done += max(sent, 0)


def _open(kernel: Kernel, path: str | bytes, flags: int, mode: int) -> int:
    while True:
        fd = kernel.open_file(path, flags, mode)
        if fd != -errno.EINTR:
            return fd
