"""Whole files: read and written in one step."""

from __future__ import annotations

import errno
import functools
import io
import os
from typing import TYPE_CHECKING, Any

from whorl.aio.files.await_request import await_operation, next_turn, running_loop
from whorl.core.limits import COPY_SIZE, READ_NOW_SIZE
from whorl.handles.fs.files import write_all
from whorl.handles.fs.request import Operation, Path, learning, path_of, views_of

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from whorl.core.kernel.kernel import Kernel


async def read_bytes(path: Path) -> bytes:
    """Return all of a file. Raises OSError."""
    loop, plain = running_loop(), path_of(path)
    content = loop._kernel.content_now(plain, READ_NOW_SIZE)
    if content.__class__ is bytes:
        await next_turn()
        return content
    operation = Operation(functools.partial(_read_whole, loop._kernel, plain), plain)
    if content == -errno.EXDEV:
        operation = learning(loop._kernel, operation)
    return await await_operation(loop, operation)  # type: ignore[no-any-return]


async def read_text(
    path: Path, encoding: str | None = None, errors: str | None = None, newline: str | None = None
) -> str:
    """Return all of a text file; the options are those of `open`. Raises OSError, UnicodeDecodeError."""
    content = await read_bytes(path)
    with io.TextIOWrapper(io.BytesIO(content), io.text_encoding(encoding), errors, newline) as text:
        return text.read()


async def write_bytes(path: Path, data: ReadableBuffer) -> int:
    """Make a file of these bytes, in the place of an earlier one; return their number. Raises OSError."""
    loop, plain = running_loop(), path_of(path)
    views = views_of(memoryview(data), writable=False)
    operation = Operation(functools.partial(_write_whole, loop._kernel, plain, views), plain, views=views)
    return await await_operation(loop, operation)  # type: ignore[no-any-return]


async def write_text(
    path: Path,
    data: str,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
) -> int:
    """Make a file of this text; return its number of characters. Raises OSError, UnicodeEncodeError."""
    if not isinstance(data, str):
        raise TypeError(f"data must be str, not {type(data).__name__}")
    content = io.BytesIO()
    with io.TextIOWrapper(content, io.text_encoding(encoding), errors, newline) as text:
        text.write(data)
        text.flush()
        encoded = content.getvalue()
    await write_bytes(path, encoded)
    return len(data)


def _read_whole(kernel: Kernel, path: str | bytes) -> Any:
    """Return, in a thread, a file's content, or the negative error number."""
    fd = open_again(kernel, path, os.O_RDONLY)
    if fd < 0:
        return fd
    try:
        status = kernel.status_of(fd)
        if isinstance(status, int):
            return status
        size = status.st_size + 1  # One more, so that the first read sees the end.
        pieces: list[bytes] = []
        while True:
            piece = kernel.read_file(fd, max(size, COPY_SIZE), -1)
            if isinstance(piece, int):
                if piece != -errno.EINTR:
                    return piece
                continue
            if not piece:
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.append(piece)
            size -= len(piece)
    finally:
        kernel.close_fd(fd)


def _write_whole(kernel: Kernel, path: str | bytes, views: list[memoryview]) -> int:
    """Make a file in a thread; return the number of bytes, or the negative error number."""
    fd = open_again(kernel, path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    if fd < 0:
        return fd
    size = sum(map(len, views))
    written = code = 0
    while written < size and code >= 0:
        with views[0][written:] as rest:
            code = write_all(kernel, fd, [rest], -1)
        written += max(code, 0)
    closed = kernel.close_fd(fd)
    if code >= 0 and closed < 0 and closed != -errno.EINTR:
        code = closed
    return code if code < 0 else written


def open_again(kernel: Kernel, path: str | bytes, flags: int) -> int:
    """Open a file in a thread, whichever signals come."""
    while True:
        fd = kernel.open_file(path, flags, 0o666)
        if fd != -errno.EINTR:
            return fd
