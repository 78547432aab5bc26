"""Requests to the file system, and their shared parts: paths, numbers, buffers, errors.

If Linux can answer an operation from memory without blocking, the request ends in the pending phase. A thread
of the pool does every other operation. Without a callback the operation is done at once.
"""

from __future__ import annotations

import errno
import math
import operator
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from whorl.core.handle import Completion
from whorl.core.kernel.files import TIME_NOW, TIME_OMIT
from whorl.handles.threads.thread_pool import Work

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from whorl.core.kernel.kernel import Kernel
    from whorl.core.loop.loop import Loop

Path: TypeAlias = "str | bytes | os.PathLike[str] | os.PathLike[bytes]"
Result = TypeVar("Result")

#: The callback at the end of a request: `callback(request, result, error)`.
Done: TypeAlias = "Callable[[FsRequest, Result | None, BaseException | None], object]"

LONG = (1 << 63) - 1
INT = (1 << 31) - 1
UINT = (1 << 32) - 1


_BYTES = ("B", "b", "c")


class Operation:
    """An operation: `call` does it and returns a result or the negative error number.

    `paths` are the paths in the error. `views` hold its memory, which cannot be resized meanwhile.
    `now` returns a result from memory, or a negative number. `dispose` releases an undelivered result.
    """

    __slots__ = ("call", "dispose", "now", "paths", "repeats", "views")

    def __init__(
        self,
        call: Callable[[], Any],
        *paths: str | bytes,
        views: Sequence[memoryview] = (),
        now: Callable[[], Any] | None = None,
        dispose: Callable[[Any], object] | None = None,
        repeats: bool = True,
    ) -> None:
        self.call: Callable[[], Any] = call
        self.paths: tuple[str | bytes, ...] = paths
        self.views: Sequence[memoryview] = views
        self.now: Callable[[], Any] | None = now
        self.dispose: Callable[[Any], object] | None = dispose
        self.repeats: bool = repeats  # whether to call again after an interruption by a signal

    def attempt(self) -> tuple[Any, OSError | None]:
        """Do the operation; return the result and None, or None and the error."""
        result = self.call()
        while result.__class__ is int and result < 0:
            if result != -errno.EINTR or not self.repeats:
                return None, self.error(result)
            result = self.call()
        return result, None

    def perform(self) -> Any:
        """Do the operation at once; return the result or raise OSError."""
        try:
            result, error = self.attempt()
        finally:
            self.release()
        if error is not None:
            raise error
        return result

    def error(self, code: int) -> OSError:
        """Return the exception for a negative error number."""
        text = os.strerror(-code)
        if len(self.paths) == 2:
            return OSError(-code, text, self.paths[0], None, self.paths[1])
        return OSError(-code, text, *self.paths)

    def release(self) -> None:
        """Release the views."""
        for view in self.views:
            view.release()
        self.views = ()


class FsRequest(Work):
    """A request to the file system (libuv: ``uv_fs_t``).

    `cancel` succeeds while no thread has begun; the callback then gets OSError (ECANCELED). A descriptor
    that was opened for a loop that has been closed meanwhile is closed.
    """

    __slots__ = ("_operation", "_undelivered")

    def __init__(self, loop: Loop, operation: Operation, callback: Done[Any]) -> None:
        if not callable(callback):
            raise TypeError(f"a callable object was expected as callback, got {callback!r}")
        self._operation = operation
        self._undelivered: list[Any] = []  # the result, until it is delivered or disposed of
        super().__init__(loop, operation.attempt, callback)

    @property
    def path(self) -> str | bytes | None:
        """The path of the operation, if it has one (libuv: ``uv_fs_get_path``)."""
        paths = self._operation.paths
        return paths[0] if paths else None

    def _submit(self, slow: bool) -> None:
        operation = self._operation
        if operation.now is not None:
            answer = operation.now()
            if answer.__class__ is not int or answer >= 0:
                self._undelivered.append(answer)
                self.loop._post_from_any_thread(Completion(self._finish, (answer, None), self._abandon))
                return
            if answer == -errno.EXDEV:
                self._operation = learning(self.loop._kernel, operation)
        super()._submit(slow)

    def _execute(self) -> None:
        try:
            result, error = self._operation.attempt()
        except BaseException as problem:
            self._deliver(None, problem)
        else:
            self._deliver(result, error)

    def _deliver(self, result: Any, error: BaseException | None) -> None:
        if error is None:
            self._undelivered.append(result)
        self.loop._post_from_any_thread(Completion(self._finish, (result, error), self._abandon))
        if self.loop.is_closed():
            self._abandon()

    def _finish(self, result: Any, error: BaseException | None) -> None:
        self._undelivered.clear()
        self._operation.release()
        super()._finish(result, error)

    def _abandon(self) -> None:
        """Dispose of an undelivered result, once: the loop is closed."""
        while self._undelivered:
            try:
                result = self._undelivered.pop()
            except IndexError:
                return
            if self._operation.dispose is not None:
                self._operation.dispose(result)


def run(loop: Loop, operation: Operation, callback: Done[Any] | None) -> Any:
    """Begin a request and return it; without a callback, do the operation at once and return its result."""
    loop._check_closed()
    if callback is None:
        return operation.perform()
    return FsRequest(loop, operation, callback)


def learning(kernel: Kernel, operation: Operation) -> Operation:
    """Return the operation with a step that learns whether memory may answer the next one of its kind."""

    def call() -> Any:
        kernel.learn_mount(operation.paths[0])
        return operation.call()

    return Operation(call, *operation.paths, dispose=operation.dispose, repeats=operation.repeats)


# The arguments of users.


def path_of(path: Path) -> str | bytes:
    """Return a path as text or bytes; raise TypeError, and ValueError for a zero byte in it."""
    plain = os.fspath(path)
    if b"\0" in os.fsencode(plain):
        raise ValueError(f"embedded null byte in the path {plain!r}")
    return plain


def number(value: int, lowest: int, highest: int, what: str) -> int:
    """Return a number within bounds; raise TypeError, ValueError if too low, OverflowError if too high."""
    plain = operator.index(value)
    if plain < lowest:
        raise ValueError(f"{what} is at least {lowest}, not {plain}")
    if plain > highest:
        raise OverflowError(f"{what} is at most {highest}, not {plain}")
    return plain


def descriptor(fd: int) -> int:
    """Return a descriptor, for a negative one the largest int, which the kernel refuses."""
    plain = number(fd, -INT - 1, INT, "a descriptor")
    return plain if plain >= 0 else INT


def nanoseconds(seconds: float) -> int:
    """Return seconds as the kernel's calls take them; infinity is the present, NaN the file's own time.

    Source: ``UV_FS_UTIME_NOW`` and ``UV_FS_UTIME_OMIT``.
    """
    if isinstance(seconds, int):
        result = seconds * 1_000_000_000
    elif math.isnan(seconds):
        return TIME_OMIT
    elif seconds == math.inf:
        return TIME_NOW
    else:
        whole = math.floor(seconds)
        result = whole * 1_000_000_000 + round((seconds - whole) * 1_000_000_000)
    if abs(result) >= TIME_OMIT:
        raise OverflowError(f"a time of {seconds} seconds does not fit")
    return result


def views_of(buffers: ReadableBuffer | Sequence[ReadableBuffer], writable: bool) -> list[memoryview]:
    """Return views of one buffer or several, which cannot be resized from now on.

    Raises TypeError, BufferError if a buffer is not writable memory in one piece, OSError (EINVAL) for none.
    """
    views: list[memoryview] = []
    try:
        for buffer in buffers if isinstance(buffers, list | tuple) else (buffers,):
            with memoryview(buffer) as view:
                if writable and view.readonly:
                    raise TypeError("a writable buffer was expected")
                if view.c_contiguous and view.format in _BYTES:
                    views.append(view.cast("B"))
                elif writable:
                    raise BufferError("a buffer of bytes in one piece was expected")
                else:
                    views.append(memoryview(view.tobytes()))
        if not views:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    except BaseException:
        for view in views:
            view.release()
        raise
    return views
