"""Files and directories with new names for coroutines: functions of `tempfile`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from whorl.aio.files.await_request import await_operation, running_loop
from whorl.handles.fs.names import make_temporary
from whorl.handles.fs.request import Operation, Path, path_of

if TYPE_CHECKING:
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


async def mkstemp(
    suffix: Part = None,
    prefix: Part = None,
    dir: Path | None = None,  # noqa: A002
    text: bool = False,
) -> tuple[int, Any]:
    """Make a new file; return a descriptor to read and write it, and its path (tempfile.mkstemp)."""
    loop, names = running_loop(), Names.of(suffix, prefix, dir)
    kernel, flags = loop._kernel, os.O_RDWR | os.O_CREAT | os.O_EXCL

    def call() -> Any:
        return names.make(kernel, lambda path: kernel.open_file(path, flags, 0o600))

    def dispose(made: tuple[str | bytes, int]) -> None:
        kernel.close_fd(made[1])
        kernel.remove_file(made[0])

    path, fd = await await_operation(loop, Operation(call, dispose=dispose, repeats=False))
    return fd, path


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
