"""Opening files for coroutines."""

from __future__ import annotations

import errno
import functools
import os
import stat as modes
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, AnyStr, Generic, overload

from whorl.aio.files.await_request import await_operation, next_turn, running_loop
from whorl.aio.files.file import File
from whorl.aio.files.open_mode import Mode, parse
from whorl.aio.files.whole_file import open_again
from whorl.handles.fs.request import Operation, Path, descriptor, learning, path_of

if TYPE_CHECKING:
    from types import TracebackType

    from _typeshed import OpenBinaryMode, OpenTextMode

    from whorl.aio.loop_type import AnyLoop
    from whorl.core.kernel.kernel import Kernel


class Opening(Generic[AnyStr]):
    """The result of `open`: to be awaited, or entered by `async with`."""

    def __init__(self, path: Path | int, mode: Mode) -> None:
        self._path = path
        self._mode = mode
        self._file: File[AnyStr] | None = None

    def __await__(self) -> Generator[Any, None, File[AnyStr]]:
        return self._open().__await__()

    async def __aenter__(self) -> File[AnyStr]:
        self._file = await self._open()
        return self._file

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._file is not None:
            await self._file.close()

    async def _open(self) -> File[AnyStr]:
        loop = running_loop()
        if isinstance(self._path, int):
            return File(loop, descriptor(self._path), self._mode, self._path, is_plain=False)
        plain, kernel = path_of(self._path), loop._kernel
        operation = Operation(
            functools.partial(_open_in_thread, kernel, plain, self._mode),
            plain,
            dispose=lambda opened: kernel.close_fd(opened[0]),
        )
        if self._mode.flags == os.O_RDONLY:
            fd = kernel.open_now(plain)
            if fd >= 0:
                try:
                    await next_turn()
                except BaseException:
                    kernel.close(fd)
                    raise
                return self._made(loop, fd, True)
            if fd == -errno.EXDEV:
                operation = learning(kernel, operation)
        return self._made(loop, *await await_operation(loop, operation))

    def _made(self, loop: AnyLoop, fd: int, is_plain: bool) -> File[AnyStr]:
        try:
            return File(loop, fd, self._mode, self._path, is_plain=is_plain and self._mode.buffering != 0)
        except BaseException:
            loop._kernel.close_fd(fd)
            raise


def _open_in_thread(kernel: Kernel, path: str | bytes, mode: Mode) -> Any:
    """Return a descriptor and whether it is of a regular file that is read; or the negative error number."""
    fd = open_again(kernel, path, mode.flags)
    if fd < 0:
        return fd
    status = kernel.status_of(fd)
    if not isinstance(status, int) and modes.S_ISDIR(status.st_mode):
        status = -errno.EISDIR
    if isinstance(status, int):
        kernel.close_fd(fd)
        return status
    if mode.appends:
        kernel.seek_file(fd, 0, os.SEEK_END)
    return fd, modes.S_ISREG(status.st_mode) and mode.flags == os.O_RDONLY


@overload
def open(  # noqa: A001
    path: Path | int,
    mode: OpenTextMode = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
) -> Opening[str]: ...
@overload
def open(  # noqa: A001
    path: Path | int,
    mode: OpenBinaryMode,
    buffering: int = -1,
    encoding: None = None,
    errors: None = None,
    newline: None = None,
) -> Opening[bytes]: ...
@overload
def open(  # noqa: A001
    path: Path | int,
    mode: str,
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
) -> Opening[Any]: ...
def open(  # noqa: A001
    path: Path | int,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
) -> Opening[Any]:
    """Open a file: ``file = await open(...)``, or ``async with open(...) as file``.

    The arguments are those of Python's `open`; the file takes over a descriptor. Raises OSError, ValueError,
    and RuntimeError on a loop that is not Whorl's.
    """
    return Opening(path, parse(mode, buffering, encoding, errors, newline))
