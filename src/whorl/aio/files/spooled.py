"""A temporary file that stays in memory until it is large: `tempfile`'s class for coroutines."""

from __future__ import annotations

import asyncio
import errno
import functools
import io
import os
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any

from whorl.aio.files.await_request import await_operation, next_turn, running_loop
from whorl.aio.files.file import File
from whorl.aio.files.open_mode import parse
from whorl.aio.files.temporary import Names, Part, give_file_back, make_unnamed
from whorl.core.kernel.errors import os_error
from whorl.handles.fs.request import Operation, Path

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from _typeshed import ReadableBuffer, WriteableBuffer

    from whorl.core.kernel.kernel import Kernel


def _make_with(kernel: Kernel, names: Names, content: memoryview) -> Any:
    """Return None and the descriptor of a nameless file with this content; or the negative error number."""
    made = make_unnamed(kernel, names)
    if type(made) is not tuple:
        return made
    written = 0
    while written < len(content):
        count = kernel.write_file(made[1], [content[written:]], -1)
        if count == -errno.EINTR:
            continue
        if count < 0:
            give_file_back(kernel, made)
            return count
        written += count
    return made


class SpooledTemporaryFile:
    """A file in memory, until it has more than `max_size` bytes; then one without a name on the disk.

    If `max_size` is 0, it stays in memory until `rollover`, `fileno` or a `truncate` that extends it. It is
    used at once, awaited, or entered by ``async with``. Its methods are those of Python's files, to be
    awaited (tempfile.SpooledTemporaryFile).
    """

    def __init__(
        self,
        max_size: int = 0,
        mode: str = "w+b",
        buffering: int = -1,
        encoding: str | None = None,
        newline: str | None = None,
        suffix: Part = None,
        prefix: Part = None,
        dir: Path | None = None,  # noqa: A002
        *,
        errors: str | None = None,
    ) -> None:
        self._max_size = max_size
        self._mode = parse(mode, buffering, encoding, errors, newline)
        self._names = Names.of(suffix, prefix, dir)
        self._bytes = io.BytesIO()
        self._memory: Any = self._bytes
        if not self._mode.is_binary:
            self._memory = io.TextIOWrapper(self._bytes, self._mode.encoding, errors, newline)
        self._file: File[Any] | None = None  # once it is on the disk
        self._turn = asyncio.Lock()

    # Attributes and checks that need no waiting.

    @property
    def name(self) -> Any:
        """The descriptor once the file is on the disk; None before."""
        return None if self._file is None else self._file.name

    @property
    def mode(self) -> str:
        """The mode, as it was given."""
        return self._mode.text

    @property
    def closed(self) -> bool:
        """True once `close` was called."""
        return bool(self._memory.closed) if self._file is None else self._file.closed

    @property
    def encoding(self) -> str | None:
        """The encoding of a text file."""
        return None if self._mode.is_binary else self._mode.codec

    @property
    def errors(self) -> str | None:
        """The name of the error handling of the encoding."""
        return None if self._mode.is_binary else self._mode.errors or "strict"

    @property
    def newlines(self) -> Any:
        """The ends of lines seen so far, if the text's ends of lines are translated."""
        return getattr(self._memory, "newlines", None) if self._file is None else self._file.newlines

    def fileno(self) -> int:
        """Return the descriptor; write a file in memory to the disk now (`rollover` uses a thread)."""
        if self._file is None:
            kernel, content, position = self._kernel_and_content()
            if self._turn.locked():
                raise RuntimeError("the file is being written to the disk")
            with content:
                made = _make_with(kernel, self._names, content)
            if type(made) is not tuple:
                raise os_error(made)
            file = self._file_of(made[1])
            file._stack.seek(position)
            self._adopt(file)
            return file.fileno()
        return self._file.fileno()

    def isatty(self) -> bool:
        """Return False; raise ValueError if the file is closed."""
        self._check_open()
        return False

    def readable(self) -> bool:
        """Return whether it may be read."""
        return self._ask_file("readable")

    def writable(self) -> bool:
        """Return whether it may be written."""
        return self._ask_file("writable")

    def seekable(self) -> bool:
        """Return whether it has a position."""
        return self._ask_file("seekable")

    def _ask_file(self, method: str) -> bool:
        return bool(getattr(self._memory if self._file is None else self._file, method)())

    # Methods to be awaited.

    async def read(self, size: int | None = -1) -> Any:
        """Read `size` bytes or characters, or all there is; fewer only at the end."""
        return await self._do("read", size)

    async def read1(self, size: int = -1) -> Any:
        """Read the data that one call gives, at most `size` bytes."""
        return await self._do("read1", size)

    async def readinto(self, buffer: WriteableBuffer) -> Any:
        """Read into a buffer; return the number of bytes."""
        return await self._do("readinto", buffer)

    async def readline(self, size: int = -1) -> Any:
        """Read a line, at most `size` bytes or characters of it; return nothing at the end."""
        return await self._do("readline", size)

    async def readlines(self, hint: int = -1) -> list[Any]:
        """Read lines to the end, or until they have more than `hint` bytes or characters."""
        return await self._do("readlines", hint)  # type: ignore[no-any-return]

    async def write(self, data: str | ReadableBuffer) -> int:
        """Write; return the number of bytes or characters, which is all."""
        return await self._do("write", data, grows=True)  # type: ignore[no-any-return]

    async def writelines(self, lines: Iterable[str | ReadableBuffer]) -> None:
        """Write several pieces."""
        await self._do("writelines", list(lines), grows=True)

    async def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position and return it."""
        return await self._do("seek", offset, whence)  # type: ignore[no-any-return]

    async def tell(self) -> int:
        """Return the position; in text a number that only `seek` understands."""
        return await self._do("tell")  # type: ignore[no-any-return]

    async def truncate(self, size: int | None = None) -> int:
        """Cut or extend the file, at the position by default; return its new size."""
        if size is not None and size > self._max_size:
            await self.rollover()
        return await self._do("truncate", size)  # type: ignore[no-any-return]

    async def flush(self) -> None:
        """Give the content of the buffer to the kernel."""
        await self._do("flush")

    async def _do(self, method: str, *arguments: Any, grows: bool = False) -> Any:
        """Do an operation in memory or on the disk; a file that grows too large moves to the disk."""
        async with self._turn:
            if self._file is None:
                result = getattr(self._memory, method)(*arguments)
                if grows and self._max_size and self._memory.tell() > self._max_size:
                    await self._roll_over()
                else:
                    await next_turn()
                return result
        act: Callable[..., Any] = getattr(self._file, method)
        return await act(*arguments)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if line := await self.readline():
            return line
        raise StopAsyncIteration

    # On the disk.

    async def rollover(self) -> None:
        """Put the file on the disk, if it is not there."""
        async with self._turn:
            if self._file is None:
                await self._roll_over()

    async def _roll_over(self) -> None:
        kernel, content, position = self._kernel_and_content()
        call = functools.partial(_make_with, kernel, self._names, content)
        dispose = functools.partial(give_file_back, kernel)
        _, fd = await await_operation(running_loop(), Operation(call, dispose=dispose, repeats=False))
        file = self._file_of(fd)
        try:
            await file.seek(position)
        except BaseException:
            await file.close()
            raise
        self._adopt(file)

    def _kernel_and_content(self) -> tuple[Kernel, memoryview, int]:
        """Return the loop's kernel, the file's content in memory, and the position."""
        self._check_open()
        self._memory.flush()
        return running_loop()._kernel, memoryview(self._bytes.getvalue()), self._memory.tell()

    def _file_of(self, fd: int) -> File[Any]:
        loop = running_loop()
        try:
            return File(loop, fd, self._mode, fd, is_plain=False)
        except BaseException:
            loop._kernel.close_fd(fd)
            raise

    def _adopt(self, file: File[Any]) -> None:
        self._file = file
        self._memory.close()

    # The end.

    async def close(self) -> None:
        """Release the memory, or the file, which is gone then. Closing again does nothing."""
        if self._file is not None:
            await self._file.close()
        else:
            async with self._turn:
                if self._file is None:
                    self._memory.close()
            if self._file is not None:
                await self._file.close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        running_loop()
        self._check_open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
