"""The kernel's calls for changes of files: inotify. The rules are those of `Kernel`.

`Kernel.read` reads the events from the descriptor.
"""

from __future__ import annotations

import os
from typing import Any

from whorl.core.kernel.errors import negative_errno
from whorl.core.kernel.terminal import TerminalCalls

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if not cython.compiled:

    def new_notifier() -> int:
        """Return a new inotify instance."""
        from whorl.core.kernel import libc

        return libc.call("inotify_init1", os.O_CLOEXEC | os.O_NONBLOCK)

    def watch_path(fd: int, path: bytes, mask: int) -> int:
        """Watch a path, or change what it is watched for."""
        from whorl.core.kernel import libc

        return libc.call("inotify_add_watch", fd, path, mask)

    def unwatch_path(fd: int, watch: int) -> int:
        """End a watch."""
        from whorl.core.kernel import libc

        return libc.call("inotify_rm_watch", fd, watch)


class NotifyCalls(TerminalCalls):
    """The part of the kernel for changes of files."""

    def status(self, path: str | bytes, follow: bool) -> Any:
        """Return the status of a path, an os.stat_result, or the negative error number (man 2 stat)."""
        try:
            answer: Any = os.stat(path, follow_symlinks=follow)
        except OSError as error:
            answer = negative_errno(error)
        return answer

    def inotify_create(self) -> int:
        """Return a new, non-blocking inotify instance (man 2 inotify_init1)."""
        return new_notifier()

    def inotify_add(self, fd: int, path: bytes, mask: int) -> int:
        """Watch a path; return the watch's number, one for all paths of a file (man 2 inotify_add_watch).

        Raises ValueError for a path with a zero byte in it.
        """
        if b"\0" in path:
            raise ValueError("embedded null byte")
        return watch_path(fd, path, mask)

    def inotify_remove(self, fd: int, watch: int) -> int:
        """End a watch (man 2 inotify_rm_watch)."""
        return unwatch_path(fd, watch)
