"""Open files for coroutines.

A file is Python's io object, used in the pool's threads. One operation runs at a time, in the order of the
calls. Three things avoid a thread:

* A file that was opened for reading begins without the io object. Data in memory is then read in place.
* Lines are fetched by the batch. Any other operation first takes the file back to the reader's position.
* A write that fits into the buffer of the file is put there.

A cancelled operation that no thread has begun is not done. A running one goes on, and no other begins before
it has ended. If it was reading, the position is afterwards the one from before.
"""

from __future__ import annotations

import asyncio
import collections
import errno
import functools
import io
import os
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, AnyStr, Generic, cast

from whorl.aio.files.await_request import next_turn
from whorl.aio.files.open_mode import Mode, largest_size
from whorl.aio.files.raw_io import lines_of, make_stack, read_batch, read_into, read_lines, write_through
from whorl.core.copying import refuse_copy
from whorl.core.kernel.errors import os_error
from whorl.core.limits import FILE_BUFFER, READ_NOW_SIZE
from whorl.handles.threads.thread_pool import Work

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from _typeshed import ReadableBuffer, WriteableBuffer

    from whorl.aio.loop_type import AnyLoop


class File(Generic[AnyStr]):
    """An open file; made by `open`.

    Its methods are those of Python's files, to be awaited.
    """

    __reduce__ = refuse_copy

    def __init__(self, loop: AnyLoop, fd: int, mode: Mode, name: Any, *, is_plain: bool) -> None:
        self._loop = loop
        self._kernel = loop._kernel
        self._fd = fd
        self._mode = mode
        self._name = name
        # Without an io object, until one is needed: only a regular file that is read.
        self._stack: Any = None if is_plain else make_stack(self._kernel, fd, mode, name)
        self._position = 0  # while there is no io object
        self._lines: collections.deque[Any] = collections.deque()  # read, and not returned yet
        self._lines_begin: Any = 0  # where the batch began
        self._lines_taken = 0  # the number of returned items; in binary mode, of bytes
        self._lines_error: BaseException | None = None  # the error after them
        self._saw_end = False  # whether the file ended after the batch
        self._rewind: Any = None  # where a cancelled operation began to read
        self._buffer_free = 0  # the number of bytes that the buffer surely takes
        self._turn = asyncio.Lock()
        self._is_busy = False  # whether a thread uses the io object
        self._idle: asyncio.Future[None] | None = None  # done when no thread uses it
        self._ending: asyncio.Future[None] | None = None  # done when it is closed

    # Attributes and checks that need no waiting.

    @property
    def name(self) -> Any:
        """The opened path or descriptor."""
        return self._name

    @property
    def mode(self) -> str:
        """The mode, as it was given."""
        return self._mode.text

    @property
    def closed(self) -> bool:
        """True once `close` was called."""
        return self._ending is not None

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
        return None if self._mode.is_binary or self._stack is None else self._stack.newlines

    def fileno(self) -> int:
        """Return the descriptor; raise ValueError if the file is closed."""
        self._check_open()
        return self._fd

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return self._kernel.is_terminal(self.fileno())

    def readable(self) -> bool:
        """Return whether it may be read."""
        self._check_open()
        return self._mode.reads

    def writable(self) -> bool:
        """Return whether it may be written."""
        self._check_open()
        return self._mode.writes

    def seekable(self) -> bool:
        """Return whether it has a position."""
        self._check_open()
        return self._stack is None or bool(self._stack.seekable())

    # Reading.

    async def read(self, size: int | None = -1) -> AnyStr:
        """Read `size` bytes or characters, or all there is; fewer only at the end."""
        size = -1 if size is None else size
        if self._stack is None and not self._is_taken():
            found = self._read_now(size)
            if found is not None:
                await self._after_reading(found[1])
                return found[0]  # type: ignore[no-any-return]
        return await self._read_by(lambda stack: stack.read(size))  # type: ignore[no-any-return]

    async def read1(self, size: int = -1) -> bytes:
        """Read the data that one call gives, at most `size` bytes."""
        self._check_binary("read1")
        return await self._read_by(lambda stack: stack.read1(size))  # type: ignore[no-any-return]

    async def readinto(self, buffer: WriteableBuffer) -> int:
        """Read into a buffer, which cannot be resized meanwhile; return the number of bytes."""
        self._check_binary("readinto")
        with memoryview(buffer) as view:
            if view.readonly:
                raise TypeError("readinto() needs a writable buffer")
            # A thread may still write when the caller is cancelled: the view belongs to it.
            return await self._read_by(functools.partial(read_into, view[:]))  # type: ignore[no-any-return]

    async def readline(self, size: int = -1) -> AnyStr:
        """Read a line, at most `size` bytes or characters of it; return nothing at the end."""
        if size is not None and size >= 0:
            return await self._read_by(lambda stack: stack.readline(size))  # type: ignore[no-any-return]
        if self._lines and not self._is_taken():
            return self._take_line()  # type: ignore[no-any-return]
        line = await self._next_line()
        self._saw_end = False  # There may be more at the next call.
        return line  # type: ignore[no-any-return]

    async def readlines(self, hint: int = -1) -> list[AnyStr]:
        """Read lines to the end, or until they have more than `hint` bytes or characters."""
        limit = hint if hint is not None and hint > 0 else None
        return await self._read_by(functools.partial(read_lines, limit))  # type: ignore[no-any-return]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AnyStr:
        if self._lines and not self._is_taken():
            return self._take_line()  # type: ignore[no-any-return]
        if self._saw_end and not self._is_taken():
            self._saw_end = False
            raise StopAsyncIteration
        line = await self._next_line()
        if not line:
            self._saw_end = False
            raise StopAsyncIteration
        return line  # type: ignore[no-any-return]

    async def _next_line(self) -> Any:
        """Fetch a batch of lines and return the first; nothing at the end."""
        self._check_reads()
        async with self._turn:
            await self._until_idle()
            if not self._lines and self._lines_error is None:
                await self._fetch_lines()
            if self._lines:
                return self._take_line()
            if self._lines_error is not None:
                error, self._lines_error = self._lines_error, None
                raise error
            return b"" if self._mode.is_binary else ""

    async def _fetch_lines(self) -> None:
        if self._stack is None and self._position == 0 and self._mode.newline in (None, "\n"):
            found = self._read_now(-1)
            if found is not None:
                await self._after_reading(found[1])
                self._lines_begin = self._lines_taken = 0
                self._lines.extend(lines_of(found[0]))
                self._saw_end = True
                return
        if self._mode.writes or not self.seekable():
            line = await self._run(lambda stack: stack.readline(), reads=True)
            self._lines_begin = None
            self._lines.extend([line] if line else [])
            return
        begin, found = await self._run(read_batch, reads=True, tells=True)
        self._lines_begin, self._lines_taken = begin, 0
        lines, self._saw_end, self._lines_error = found
        self._lines.extend(lines)

    def _take_line(self) -> Any:
        line = self._lines.popleft()
        self._lines_taken += len(line) if self._mode.is_binary else 1
        return line

    # Reading in place.

    def _read_now(self, size: int) -> tuple[Any, int] | None:
        """Return the data and the position after it, if it is in memory; else None, as a thread has to."""
        self._check_reads()
        if self._lines or not self._can_read_now(size):
            return None
        wanted = READ_NOW_SIZE + 1 if size < 0 else size
        content = self._kernel.read_now(self._fd, wanted, self._position)
        if content.__class__ is not bytes or (size < 0 and len(content) > READ_NOW_SIZE):
            return None
        return (content if self._mode.is_binary else self._decoded(content)), self._position + len(content)

    def _can_read_now(self, size: int) -> bool:
        if self._mode.is_binary:
            return size <= READ_NOW_SIZE
        return size < 0 and self._position == 0 and self._mode.decodes_at_once and self._mode.newline != "\r"

    def _decoded(self, content: bytes) -> str:
        text = content.decode(self._mode.codec, self._mode.errors or "strict")
        if self._mode.newline is None and "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        return text

    async def _after_reading(self, position: int) -> None:
        """Set the position in the next turn, unless the caller is cancelled."""
        self._is_busy = True
        try:
            await next_turn()
            self._position = position
        finally:
            self._operation_ended()

    # Writing.

    async def write(self, data: AnyStr | ReadableBuffer) -> int:
        """Write; return the number of bytes or characters, which is all."""
        self._check_open()
        if not self._mode.is_binary and not isinstance(data, str):
            raise TypeError(f"write() argument must be str, not {type(data).__name__}")
        size = len(data) if isinstance(data, str) else memoryview(data).nbytes
        most = largest_size(self._mode, data) if isinstance(data, str) else size
        if most is not None and most <= self._buffer_free and not self._is_taken():
            self._buffer_free -= most
            return int(self._stack.write(data))
        if isinstance(data, str | bytes):
            return int(await self._do(functools.partial(write_through, data, self._buffers())))
        with memoryview(data) as view:
            return int(await self._do(functools.partial(write_through, view[:], self._buffers())))

    async def writelines(self, lines: Iterable[AnyStr | ReadableBuffer]) -> None:
        """Write several pieces."""
        pieces = list(lines)
        await self._do(lambda stack: stack.writelines(pieces))

    async def flush(self) -> None:
        """Give the content of the buffer to the kernel."""
        if self._stack is None:
            self._check_open()
            await next_turn()
        else:
            await self._do(lambda stack: stack.flush(), empties_buffer=self._buffers())

    async def truncate(self, size: int | None = None) -> int:
        """Cut or extend the file, at the position by default; return its new size."""
        return int(await self._do(lambda stack: stack.truncate(size)))

    def _buffers(self) -> bool:
        """Return whether writes of a few bytes may go into a buffer that is surely empty after a flush."""
        mode = self._mode
        return mode.writes and not mode.reads and mode.buffering != 0 and mode.buffering != 1

    # The position.

    async def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position and return it. In text only to a value of `tell`, or to an end."""
        return int(await self._do(lambda stack: stack.seek(offset, whence)))

    async def tell(self) -> int:
        """Return the position; in text a number that only `seek` understands."""
        if self._stack is None and not self._lines and not self._is_taken():
            self._check_open()
            await next_turn()
            return self._position
        return int(await self._do(lambda stack: stack.tell()))

    # The end.

    async def close(self) -> None:
        """Write the content of the buffer, and close the descriptor. Closing again does nothing.

        This is done even if the caller is cancelled.
        """
        if self._ending is None:
            self._ending = self._loop.create_future()
            if not self._is_busy:
                self._end()
        if self._ending.done():
            await next_turn()
            self._ending.result()
        else:
            await asyncio.shield(self._ending)

    def _end(self) -> None:
        ending = cast("asyncio.Future[None]", self._ending)
        if self._stack is None:
            code = self._kernel.close(self._fd)  # Nothing was written, so nothing keeps this waiting.
            if code < 0 and code != -errno.EINTR:
                ending.set_exception(os_error(code))
            else:
                ending.set_result(None)
        else:
            self._is_busy = True
            Work(self._loop, self._stack.close, functools.partial(self._closed, ending))

    def _closed(
        self, ending: asyncio.Future[None], work: Work, result: Any, error: BaseException | None
    ) -> None:
        if error is None:
            ending.set_result(None)
        else:
            ending.set_exception(error)
        self._operation_ended()

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        if getattr(self, "_idle", self) is self or self._ending is not None:
            return  # It was never initialized, or is closed.
        warnings.warn(f"unclosed file {self!r}", ResourceWarning, source=self, stacklevel=1)
        if self._stack is None:
            self._kernel.close_fd(self._fd)
        elif not self._is_busy:
            self._stack.close()

    # Operations, one at a time.

    async def _read_by(self, act: Callable[[Any], Any]) -> Any:
        self._check_reads()
        async with self._turn:
            await self._until_idle()
            return await self._run(act, reads=True)

    async def _do(self, act: Callable[[Any], Any], *, empties_buffer: bool = False) -> Any:
        """Let a thread call a function of the io object."""
        self._check_open()
        async with self._turn:
            await self._until_idle()
            result = await self._run(act)
            if empties_buffer or getattr(act, "func", None) is write_through:
                self._buffer_free = self._empty_buffer_size()
            return result

    def _empty_buffer_size(self) -> int:
        if not self._buffers() or getattr(self._stack, "line_buffering", False):
            return 0
        return self._mode.buffering if self._mode.buffering > 1 else FILE_BUFFER

    async def _until_idle(self) -> None:
        """Wait for an operation that a thread was doing when its caller was cancelled."""
        while self._is_busy:
            self._idle = self._loop.create_future()
            await self._idle
        self._check_open()

    async def _run(self, act: Callable[[Any], Any], *, reads: bool = False, tells: bool = False) -> Any:
        future = self._loop.create_future()
        self._buffer_free = 0
        self._is_busy = True
        try:
            work = Work(
                self._loop,
                functools.partial(self._act, act, reads),
                functools.partial(self._acted, future),
            )
        except BaseException:
            self._operation_ended()
            raise
        try:
            begin, result = await future
        except BaseException:
            if not future.done() and not self._loop.is_closed():
                future.cancel()
            if future.cancelled():
                work.cancel()
            elif future.done() and future.exception() is None:
                self._rewind = future.result()[0]
            raise
        finally:
            del future, work
        return (begin, result) if tells else result

    def _act(self, act: Callable[[Any], Any], reads: bool) -> tuple[Any, Any]:
        """Call `act` in a thread, at the reader's position; return that position and the result."""
        stack = self._io()
        self._go_back(stack)
        begin = stack.tell() if reads and stack.seekable() else None
        return begin, act(stack)

    def _acted(
        self, future: asyncio.Future[Any], work: Work, outcome: Any, error: BaseException | None
    ) -> None:
        if future.cancelled():
            if error is None and outcome[0] is not None:
                self._rewind = outcome[0]
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(outcome)
        self._operation_ended()

    def _operation_ended(self) -> None:
        self._is_busy = False
        if self._ending is not None and not self._ending.done():
            self._end()
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _go_back(self, stack: Any) -> None:
        """Move to the beginning of a cancelled operation, or to the line after the last returned one."""
        if self._rewind is not None:
            stack.seek(self._rewind)
        elif self._lines and self._lines_begin is not None:
            if self._mode.is_binary:
                stack.seek(self._lines_begin + self._lines_taken)
            else:
                stack.seek(self._lines_begin)
                for _ in range(self._lines_taken):
                    stack.readline()
        self._rewind = None
        self._lines.clear()
        self._lines_error = None
        self._saw_end = False

    def _io(self) -> Any:
        """Return the io object; make it when it is first needed."""
        if self._stack is None:
            self._check_open()
            stack = make_stack(self._kernel, self._fd, self._mode, self._name)
            if self._position:
                stack.seek(self._position)
            self._stack = stack
        return self._stack

    # Checks.

    def _is_taken(self) -> bool:
        """Return whether another operation is running; raise ValueError if the file is closed."""
        self._check_open()
        return self._is_busy or self._turn.locked() or self._rewind is not None

    def _check_open(self) -> None:
        if self._ending is not None:
            raise ValueError("I/O operation on closed file")

    def _check_reads(self) -> None:
        self._check_open()
        if not self._mode.reads:
            raise io.UnsupportedOperation("not readable")

    def _check_binary(self, method: str) -> None:
        if not self._mode.is_binary:
            raise AttributeError(f"a text file has no method {method}()")

    def __repr__(self) -> str:
        closed = " closed" if self._ending is not None else ""
        return f"<whorl.fs.File name={self._name!r} mode={self._mode.text!r}{closed}>"
