"""The base of Python's io classes: an open file with system calls that go through the loop's kernel.

The buffers, the decoding and the positions of text are Python's, so Whorl's files and Python's agree. All of
it is used in threads, by one of them at a time.
"""

from __future__ import annotations

import errno
import io
import os
from typing import TYPE_CHECKING, Any

from whorl.core.copying import refuse_copy
from whorl.core.kernel.errors import os_error
from whorl.core.limits import FILE_BUFFER

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

    from whorl.aio.files.open_mode import Mode
    from whorl.core.kernel.kernel import Kernel


class RawFile(io.RawIOBase):
    """A descriptor, read and written by a kernel."""

    __reduce__ = refuse_copy

    def __init__(self, kernel: Kernel, fd: int, mode: Mode, name: Any) -> None:
        self._kernel = kernel
        self._fd = fd
        self._mode = mode
        self._seekable: bool | None = None
        self.name = name
        self.mode: str = mode.text

    def readable(self) -> bool:
        """Return whether it may be read."""
        return self._mode.reads

    def writable(self) -> bool:
        """Return whether it may be written."""
        return self._mode.writes

    def seekable(self) -> bool:
        """Return whether it has a position."""
        if self._seekable is None:
            self._seekable = self._kernel.seek_file(self._fd, 0, os.SEEK_CUR) >= 0
        return self._seekable

    def fileno(self) -> int:
        """Return the descriptor; raise ValueError if it is closed."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        return self._fd

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return self._kernel.is_terminal(self.fileno())

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        """Read; return the number of bytes, None if there are none for now."""
        if not self._mode.reads:
            raise io.UnsupportedOperation("not readable")
        with memoryview(buffer) as view:
            while True:
                count = self._kernel.read_file_into(self.fileno(), [view], -1)
                if count != -errno.EINTR:
                    return self._checked(count)

    def write(self, data: ReadableBuffer) -> int | None:
        """Write; return the number of bytes, None if the kernel takes none for now."""
        if not self._mode.writes:
            raise io.UnsupportedOperation("not writable")
        with memoryview(data) as view:
            while True:
                count = self._kernel.write_file(self.fileno(), [view], -1)
                if count != -errno.EINTR:
                    return self._checked(count)

    def _checked(self, count: int) -> int | None:
        if count >= 0:
            return count
        if count == -errno.EAGAIN:
            return None
        raise os_error(count)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position and return it."""
        position = self._kernel.seek_file(self.fileno(), offset, whence)
        if position < 0:
            raise os_error(position)
        return position

    def truncate(self, size: int | None = None) -> int:
        """Cut or extend the file; return its new size."""
        wanted = self.tell() if size is None else size
        code = self._kernel.resize(self.fileno(), wanted)
        if code < 0:
            raise os_error(code)
        return wanted

    def close(self) -> None:
        """Close the descriptor."""
        if self.closed:
            return
        super().close()
        code = self._kernel.close_fd(self._fd)
        if code < 0 and code != -errno.EINTR:
            raise os_error(code)


def make_stack(kernel: Kernel, fd: int, mode: Mode, name: Any) -> Any:
    """Return Python's io object for a descriptor, which it closes."""
    raw = RawFile(kernel, fd, mode, name)
    if mode.buffering == 0:
        return raw
    by_lines = mode.buffering == 1 or (mode.buffering < 0 and mode.writes and raw.isatty())
    size = mode.buffering if mode.buffering > 1 else FILE_BUFFER
    buffer: Any
    if mode.reads and mode.writes:
        buffer = io.BufferedRandom(raw, size)
    elif mode.writes:
        buffer = io.BufferedWriter(raw, size)
    else:
        buffer = io.BufferedReader(raw, size)
    if mode.is_binary:
        return buffer
    text = io.TextIOWrapper(buffer, mode.encoding, mode.errors, mode.newline, by_lines)
    text.mode = mode.text  # type: ignore[misc]
    return text


# Operations on the io object, in a thread.


def read_into(view: memoryview, stack: Any) -> Any:
    """Read into memory, and release it."""
    with view:
        return stack.readinto(view)


def write_through(data: str | bytes | memoryview, flushes: bool, stack: Any) -> Any:
    """Write, perhaps to the kernel at once, and release the memory."""
    try:
        written = stack.write(data)
        if flushes:
            stack.flush()
    finally:
        if isinstance(data, memoryview):
            data.release()
    return written


def read_lines(limit: int | None, stack: Any) -> list[Any]:
    """Return lines to the end, or until there are more than `limit` bytes or characters."""
    lines, size = [], 0
    while (limit is None or size <= limit) and (line := stack.readline()):
        lines.append(line)
        size += len(line)
    return lines


def read_batch(stack: Any) -> tuple[list[Any], bool, BaseException | None]:
    """Return many lines, whether the file ended after them, and an error that comes after them."""
    lines: list[Any] = []
    size = 0
    try:
        while size < FILE_BUFFER:
            line = stack.readline()
            if not line:
                return lines, True, None
            lines.append(line)
            size += len(line)
    except Exception as error:
        if not lines:
            raise
        return lines, False, error
    return lines, False, None


def lines_of(content: Any) -> list[Any]:
    """Return the lines of bytes, or of a text with translated ends of lines."""
    if isinstance(content, bytes):
        return io.BytesIO(content).readlines()
    return io.StringIO(content, newline="\n").readlines()
