"""Open files: reading, writing and the other operations on a descriptor."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from whorl.core.limits import FILE_VECTORS, READ_NOW_SIZE
from whorl.handles.fs.copy import send
from whorl.handles.fs.request import (
    INT,
    LONG,
    UINT,
    Done,
    FsRequest,
    Operation,
    Path,
    descriptor,
    nanoseconds,
    number,
    path_of,
    run,
    views_of,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

    from whorl.core.kernel.kernel import Kernel
    from whorl.core.loop.loop import Loop


@overload
def open(loop: Loop, path: Path, flags: int, mode: int = ..., callback: None = None) -> int: ...  # noqa: A001
@overload
def open(loop: Loop, path: Path, flags: int, mode: int = ..., *, callback: Done[int]) -> FsRequest: ...  # noqa: A001
def open(  # noqa: A001
    loop: Loop, path: Path, flags: int, mode: int = 0o666, callback: Done[int] | None = None
) -> Any:
    """Open a file; the result is a descriptor that no child inherits (``uv_fs_open``)."""
    kernel, plain = loop._kernel, path_of(path)
    flags, mode = number(flags, -INT - 1, INT, "flags"), number(mode, 0, INT, "a mode")
    now = functools.partial(kernel.open_now, plain) if flags | os.O_CLOEXEC == os.O_CLOEXEC else None
    call = functools.partial(kernel.open_file, plain, flags, mode)
    return run(loop, Operation(call, plain, now=now, dispose=kernel.close_fd), callback)


@overload
def close(loop: Loop, fd: int, callback: None = None) -> int: ...
@overload
def close(loop: Loop, fd: int, callback: Done[int]) -> FsRequest: ...
def close(loop: Loop, fd: int, callback: Done[int] | None = None) -> Any:
    """Close a descriptor; the result is 0 (``uv_fs_close``)."""
    return run(
        loop, Operation(functools.partial(_close, loop._kernel, descriptor(fd)), repeats=False), callback
    )


def _close(kernel: Kernel, fd: int) -> int:
    code = kernel.close_fd(fd)
    # It is closed even so, and by now its number may mean another file.
    return 0 if code in (-errno.EINTR, -errno.EINPROGRESS) else code


@overload
def read(loop: Loop, fd: int, size: int, offset: int = -1, callback: None = None) -> bytes: ...
@overload
def read(loop: Loop, fd: int, size: int, offset: int = -1, *, callback: Done[bytes]) -> FsRequest: ...
def read(loop: Loop, fd: int, size: int, offset: int = -1, callback: Done[bytes] | None = None) -> Any:
    """Read at most `size` bytes at `offset`, -1: at the descriptor's own position (``uv_fs_read``)."""
    kernel, fd = loop._kernel, descriptor(fd)
    size, offset = number(size, 0, LONG, "a size"), number(offset, -1, LONG, "an offset")
    fits = 0 <= offset <= LONG - READ_NOW_SIZE and size <= READ_NOW_SIZE and fd >= 0
    now = functools.partial(kernel.read_now, fd, size, offset) if fits else None
    return run(loop, Operation(functools.partial(kernel.read_file, fd, size, offset), now=now), callback)


@overload
def read_into(
    loop: Loop,
    fd: int,
    buffers: WriteableBuffer | Sequence[WriteableBuffer],
    offset: int = -1,
    callback: None = None,
) -> int: ...
@overload
def read_into(
    loop: Loop,
    fd: int,
    buffers: WriteableBuffer | Sequence[WriteableBuffer],
    offset: int = -1,
    *,
    callback: Done[int],
) -> FsRequest: ...
def read_into(
    loop: Loop,
    fd: int,
    buffers: WriteableBuffer | Sequence[WriteableBuffer],
    offset: int = -1,
    callback: Done[int] | None = None,
) -> Any:
    """Read into a buffer, or several one after the other; the result is the byte count (``uv_fs_read``).

    No buffer can be resized until the read is over. At most 1024 buffers are filled.
    """
    fd, offset = descriptor(fd), number(offset, -1, LONG, "an offset")
    views = views_of(buffers, writable=True)
    call = functools.partial(loop._kernel.read_file_into, fd, views[:FILE_VECTORS], offset)
    return run(loop, Operation(call, views=views), callback)


@overload
def write(
    loop: Loop,
    fd: int,
    buffers: ReadableBuffer | Sequence[ReadableBuffer],
    offset: int = -1,
    callback: None = None,
) -> int: ...
@overload
def write(
    loop: Loop,
    fd: int,
    buffers: ReadableBuffer | Sequence[ReadableBuffer],
    offset: int = -1,
    *,
    callback: Done[int],
) -> FsRequest: ...
def write(
    loop: Loop,
    fd: int,
    buffers: ReadableBuffer | Sequence[ReadableBuffer],
    offset: int = -1,
    callback: Done[int] | None = None,
) -> Any:
    """Write a buffer, or several, at `offset`, -1: at the descriptor's position (``uv_fs_write``).

    The result is how many bytes were written: all of them unless the disk is full or the like.
    """
    fd, offset = descriptor(fd), number(offset, -1, LONG, "an offset")
    views = views_of(buffers, writable=False)
    call = functools.partial(write_all, loop._kernel, fd, views, offset)
    return run(loop, Operation(call, views=views), callback)


def write_all(kernel: Kernel, fd: int, views: Sequence[memoryview], offset: int) -> int:
    """Write all buffers; return how many bytes were written, or the error if the first write fails."""
    total = index = start = 0
    while True:
        batch = list(views[index : index + FILE_VECTORS])
        if start:
            batch[0] = batch[0][start:]
        written = kernel.write_file(fd, batch, offset + total if offset >= 0 else -1)
        if start:
            batch[0].release()
        if written == -errno.EINTR:
            continue
        if written < 0:
            return total or written
        total += written
        start += written
        while index < len(views) and start >= len(views[index]):
            start -= len(views[index])
            index += 1
        if index == len(views) or not written:
            return total


@overload
def sendfile(
    loop: Loop, target: int, source: int, offset: int, length: int, callback: None = None
) -> int: ...
@overload
def sendfile(
    loop: Loop, target: int, source: int, offset: int, length: int, callback: Done[int]
) -> FsRequest: ...
def sendfile(
    loop: Loop, target: int, source: int, offset: int, length: int, callback: Done[int] | None = None
) -> Any:
    """Copy from one descriptor to another; the result is the byte count (``uv_fs_sendfile``).

    If the kernel cannot copy, read and write.
    """
    target, source = descriptor(target), descriptor(source)
    offset, length = number(offset, 0, LONG, "an offset"), number(length, 0, LONG, "a length")
    call = functools.partial(send, loop._kernel, target, source, offset, length)
    return run(loop, Operation(call), callback)


@overload
def fstat(loop: Loop, fd: int, callback: None = None) -> os.stat_result: ...
@overload
def fstat(loop: Loop, fd: int, callback: Done[os.stat_result]) -> FsRequest: ...
def fstat(loop: Loop, fd: int, callback: Done[os.stat_result] | None = None) -> Any:
    """Return the status of an open file (``uv_fs_fstat``)."""
    return run(loop, Operation(functools.partial(loop._kernel.status_of, descriptor(fd))), callback)


@overload
def ftruncate(loop: Loop, fd: int, length: int, callback: None = None) -> int: ...
@overload
def ftruncate(loop: Loop, fd: int, length: int, callback: Done[int]) -> FsRequest: ...
def ftruncate(loop: Loop, fd: int, length: int, callback: Done[int] | None = None) -> Any:
    """Cut or extend an open file; the result is 0 (``uv_fs_ftruncate``)."""
    fd, length = descriptor(fd), number(length, 0, LONG, "a length")
    return run(loop, Operation(functools.partial(loop._kernel.resize, fd, length)), callback)


@overload
def fsync(loop: Loop, fd: int, callback: None = None) -> int: ...
@overload
def fsync(loop: Loop, fd: int, callback: Done[int]) -> FsRequest: ...
def fsync(loop: Loop, fd: int, callback: Done[int] | None = None) -> Any:
    """Bring an open file to the disk; the result is 0 (``uv_fs_fsync``)."""
    return run(loop, Operation(functools.partial(loop._kernel.sync, descriptor(fd), False)), callback)


@overload
def fdatasync(loop: Loop, fd: int, callback: None = None) -> int: ...
@overload
def fdatasync(loop: Loop, fd: int, callback: Done[int]) -> FsRequest: ...
def fdatasync(loop: Loop, fd: int, callback: Done[int] | None = None) -> Any:
    """Bring the data of an open file to the disk; the result is 0 (``uv_fs_fdatasync``)."""
    return run(loop, Operation(functools.partial(loop._kernel.sync, descriptor(fd), True)), callback)


@overload
def fchmod(loop: Loop, fd: int, mode: int, callback: None = None) -> int: ...
@overload
def fchmod(loop: Loop, fd: int, mode: int, callback: Done[int]) -> FsRequest: ...
def fchmod(loop: Loop, fd: int, mode: int, callback: Done[int] | None = None) -> Any:
    """Set the permissions of an open file; the result is 0 (``uv_fs_fchmod``)."""
    fd, mode = descriptor(fd), number(mode, 0, INT, "a mode")
    return run(loop, Operation(functools.partial(loop._kernel.set_mode, fd, mode)), callback)


@overload
def fchown(loop: Loop, fd: int, user: int, group: int, callback: None = None) -> int: ...
@overload
def fchown(loop: Loop, fd: int, user: int, group: int, callback: Done[int]) -> FsRequest: ...
def fchown(loop: Loop, fd: int, user: int, group: int, callback: Done[int] | None = None) -> Any:
    """Set the owner and group of an open file, -1: as they were; the result is 0 (``uv_fs_fchown``)."""
    fd = descriptor(fd)
    user, group = number(user, -1, UINT, "a user"), number(group, -1, UINT, "a group")
    return run(loop, Operation(functools.partial(loop._kernel.set_owner, fd, user, group, True)), callback)


@overload
def futime(loop: Loop, fd: int, accessed: float, modified: float, callback: None = None) -> int: ...
@overload
def futime(loop: Loop, fd: int, accessed: float, modified: float, callback: Done[int]) -> FsRequest: ...
def futime(loop: Loop, fd: int, accessed: float, modified: float, callback: Done[int] | None = None) -> Any:
    """Set the times of an open file, as `utime` does (``uv_fs_futime``)."""
    times = nanoseconds(accessed), nanoseconds(modified)
    call = functools.partial(loop._kernel.set_times, descriptor(fd), *times, True)
    return run(loop, Operation(call), callback)
