"""Temporary files and directories for coroutines: the functions of `tempfile`."""

from __future__ import annotations

import asyncio
import functools
import os
import tempfile
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, AnyStr, NamedTuple

from whorl.aio.files.await_request import await_operation, running_loop
from whorl.aio.files.file import File
from whorl.aio.files.open import Opening
from whorl.aio.files.open_mode import Mode, parse
from whorl.handles.fs.names import make_temporary
from whorl.handles.fs.request import FsRequest, Operation, Path, path_of

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from whorl.aio.loop_type import AnyLoop
    from whorl.core.kernel.kernel import Kernel

Part = str | bytes | None


class Names(NamedTuple):
    """The parts of a temporary file's name."""

    prefix: str
    suffix: str
    folder: str | None
    is_bytes: bool

    @classmethod
    def of(cls, suffix: Part, prefix: Part, folder: Path | None) -> Names:
        """Return bytes parts if one of them is bytes; raise TypeError if they are mixed."""
        parts = [suffix, prefix, None if folder is None else path_of(folder)]
        kinds = {isinstance(part, bytes) for part in parts if part is not None}
        if len(kinds) > 1:
            raise TypeError("Can't mix bytes and non-bytes in path components.")
        texts = [None if part is None else os.fsdecode(part) for part in parts]
        return cls("tmp" if texts[1] is None else texts[1], texts[0] or "", texts[2], kinds == {True})

    def make(self, kernel: Kernel, create: Callable[[Any], int]) -> Any:
        """Return a new path and the result of `create` for it; or the negative error number."""
        folder = os.path.abspath(tempfile.gettempdir() if self.folder is None else self.folder)
        return make_temporary(kernel, os.path.join(folder, self.prefix), self.suffix, self.is_bytes, create)


def _make_file(kernel: Kernel, names: Names) -> Any:
    """Return a path and its descriptor; or the negative error number."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    return names.make(kernel, lambda path: kernel.open_file(path, flags, 0o600))


def make_unnamed(kernel: Kernel, names: Names) -> Any:
    """Return None and the descriptor of a file that has no name any more; or the negative error number."""
    made = _make_file(kernel, names)
    if type(made) is not tuple:
        return made
    kernel.remove_file(made[0])
    return None, made[1]


def give_file_back(kernel: Kernel, made: tuple[str | bytes | None, int]) -> None:
    """Close a descriptor and remove its path, if it has one."""
    kernel.close_fd(made[1])
    if made[0] is not None:
        kernel.remove_file(made[0])


async def _finish(loop: AnyLoop, operation: Operation, ignored: type[OSError] | tuple[()] = ()) -> None:
    """Do this, also if the caller is cancelled meanwhile."""
    future = loop.create_future()

    def settle(request: FsRequest, result: Any, error: BaseException | None) -> None:
        if error is None or isinstance(error, ignored):
            future.set_result(None)
        else:
            future.set_exception(error)

    FsRequest(loop, operation, settle)
    await asyncio.shield(future)


# Files.


class NamedFile(File[AnyStr]):
    """A file with a name that is removed when the file is closed, or left by `async with`."""

    def __init__(self, loop: AnyLoop, fd: int, mode: Mode, path: Any, removes_on_close: bool) -> None:
        self._path: Any = path  # None: removed
        self._removes_on_close = removes_on_close
        super().__init__(loop, fd, mode, path, is_plain=False)

    async def close(self) -> None:
        """Close the file, and remove its name if that is to be done now.

        This is done even if the caller is cancelled.
        """
        try:
            await super().close()
        finally:
            if self._removes_on_close:
                await self._remove()

    async def _remove(self) -> None:
        path, self._path = self._path, None
        if path is not None:
            call = functools.partial(self._kernel.remove_file, path)
            await _finish(self._loop, Operation(call, path), FileNotFoundError)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        finally:
            await self._remove()

    def __del__(self) -> None:
        super().__del__()
        if getattr(self, "_path", None) is not None:
            self._kernel.remove_file(self._path)


class TemporaryOpening(Opening[AnyStr]):
    """The result of `TemporaryFile` and `NamedTemporaryFile`: to be awaited, or entered by `async with`."""

    def __init__(self, mode: Mode, names: Names, is_named: bool, delete: bool, delete_on_close: bool) -> None:
        super().__init__("", mode)
        self._names = names
        self._is_named = is_named
        self._deletes = delete
        self._deletes_on_close = delete_on_close

    async def _open(self) -> File[AnyStr]:
        loop = running_loop()
        kernel = loop._kernel
        make = _make_file if self._is_named else make_unnamed
        dispose = functools.partial(give_file_back, kernel)
        operation = Operation(functools.partial(make, kernel, self._names), dispose=dispose, repeats=False)
        path, fd = await await_operation(loop, operation)
        try:
            if self._is_named and self._deletes:
                return NamedFile(loop, fd, self._mode, path, self._deletes_on_close)
            return File(loop, fd, self._mode, path if self._is_named else fd, is_plain=False)
        except BaseException:
            dispose((path, fd))
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._file is not None:
            await self._file.__aexit__(kind, error, traceback)


def TemporaryFile(  # noqa: N802 - as tempfile names it
    mode: str = "w+b",
    buffering: int = -1,
    encoding: str | None = None,
    newline: str | None = None,
    suffix: Part = None,
    prefix: Part = None,
    dir: Path | None = None,  # noqa: A002
    *,
    errors: str | None = None,
) -> Opening[Any]:
    """Open a file without a name, which is gone when it is closed (tempfile.TemporaryFile).

    ``file = await TemporaryFile(...)``, or ``async with TemporaryFile(...) as file``.
    """
    names = Names.of(suffix, prefix, dir)
    return TemporaryOpening(parse(mode, buffering, encoding, errors, newline), names, False, True, True)


def NamedTemporaryFile(  # noqa: N802
    mode: str = "w+b",
    buffering: int = -1,
    encoding: str | None = None,
    newline: str | None = None,
    suffix: Part = None,
    prefix: Part = None,
    dir: Path | None = None,  # noqa: A002
    delete: bool = True,
    *,
    errors: str | None = None,
    delete_on_close: bool = True,
) -> Opening[Any]:
    """Open a file with its path as `name` (tempfile.NamedTemporaryFile).

    It is removed when it is closed, unless `delete` is false; without `delete_on_close`, only when ``async
    with`` is left. If other code has removed it by then, that is no error.
    """
    names = Names.of(suffix, prefix, dir)
    opening = parse(mode, buffering, encoding, errors, newline)
    return TemporaryOpening(opening, names, True, delete, delete_on_close)


async def mkstemp(
    suffix: Part = None,
    prefix: Part = None,
    dir: Path | None = None,  # noqa: A002
    text: bool = False,
) -> tuple[int, Any]:
    """Make a new file; return a descriptor to read and write it, and its path (tempfile.mkstemp)."""
    loop, names = running_loop(), Names.of(suffix, prefix, dir)
    kernel = loop._kernel
    call, dispose = functools.partial(_make_file, kernel, names), functools.partial(give_file_back, kernel)
    path, fd = await await_operation(loop, Operation(call, dispose=dispose, repeats=False))
    return fd, path


# Directories.


async def mkdtemp(suffix: Part = None, prefix: Part = None, dir: Path | None = None) -> Any:  # noqa: A002
    """Make a new directory; return its path (tempfile.mkdtemp)."""
    loop, names = running_loop(), Names.of(suffix, prefix, dir)
    kernel = loop._kernel

    def call() -> Any:
        return names.make(kernel, lambda path: kernel.make_directory(path, 0o700))

    operation = Operation(call, dispose=lambda made: kernel.remove_directory(made[0]), repeats=False)
    return (await await_operation(loop, operation))[0]


async def gettempdir() -> str:
    """Return the directory for temporary files (tempfile.gettempdir); it tries out some, once."""
    return await await_operation(running_loop(), Operation(tempfile.gettempdir))  # type: ignore[no-any-return]


class TemporaryDirectory:
    """A directory that is removed with all its content (tempfile.TemporaryDirectory).

    ``async with TemporaryDirectory() as path``; awaited, it has a `name`, and is removed by `cleanup`.
    """

    def __init__(
        self,
        suffix: Part = None,
        prefix: Part = None,
        dir: Path | None = None,  # noqa: A002
        *,
        ignore_cleanup_errors: bool = False,
        delete: bool = True,
    ) -> None:
        self.name: Any = None  # none yet
        self._options: dict[str, Any] = {"suffix": suffix, "prefix": prefix, "dir": dir}
        self._ignores_errors = ignore_cleanup_errors
        self._deletes = delete
        self._directory: tempfile.TemporaryDirectory[Any] | None = None

    def __await__(self) -> Generator[Any, None, Self]:
        return self._made().__await__()

    async def __aenter__(self) -> Any:
        return (await self._made()).name

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._deletes:
            await self.cleanup()

    async def _made(self) -> Self:
        if self.name is not None:
            raise RuntimeError("this directory has been made already")
        if self._deletes:
            self._directory = await await_operation(running_loop(), Operation(self._make, dispose=_clean))
            self.name = self._directory.name
        else:
            self.name = await mkdtemp(**self._options)
        return self

    def _make(self) -> tempfile.TemporaryDirectory[Any]:
        return tempfile.TemporaryDirectory(**self._options, ignore_cleanup_errors=self._ignores_errors)

    async def cleanup(self) -> None:
        """Remove the directory, also if the caller is cancelled. Doing so again does nothing."""
        directory, self._directory = self._directory, None
        if directory is not None:
            await _finish(running_loop(), Operation(functools.partial(_clean, directory)))


def _clean(directory: tempfile.TemporaryDirectory[Any]) -> None:
    directory.cleanup()
