"""Files of a simulated disk as Python's file objects, with descriptors of the host's process."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Any

from whorl.aio.files.open_mode import parse
from whorl.aio.files.raw_io import make_stack

if TYPE_CHECKING:
    from whorl.core.kernel.kernel import Kernel


def open_file(kernel: Kernel, path: str, mode: str) -> Any:
    """Open a file as Python's `open` does, by a kernel. Raises OSError, ValueError for an unknown mode."""
    parsed = parse(mode, -1, None if "b" in mode else "utf-8", None, None)
    fd = kernel.open_file(path, parsed.flags, 0o666)
    if fd < 0:
        raise OSError(-fd, os.strerror(-fd), path)
    if stat.S_ISDIR(kernel.status_of(fd).st_mode):
        kernel.close(fd)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    return make_stack(kernel, fd, parsed, path)
