"""The remains of a run: what nobody closed, and cancellations that were swallowed."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from whorl.sim.files.epoll import Epoll
from whorl.sim.files.file import Counter
from whorl.sim.files.sockets import SocketFile

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from whorl.sim.files.file import DescriptorTable, File

_MOST = 5


def open_descriptors(table: DescriptorTable, own: Iterable[int]) -> list[str]:
    """Return a line for each descriptor that a program left open; `own` are those of the loop itself."""
    known = set(own)
    left = [
        f"descriptor {fd}, {_shown(file)}"
        for fd, file in sorted(table.files.items())
        if fd not in known and not isinstance(file, (Epoll, Counter)) and not _is_pair(file)
    ]
    if len(left) > _MOST:
        left[_MOST:] = [f"{len(left) - _MOST} more descriptors"]
    return [f"{each}, was not closed" for each in left]


def _is_pair(file: File) -> bool:
    """Return whether it is a nameless UNIX socket: loops wake themselves by a pair of those."""
    if not isinstance(file, SocketFile) or file.family != socket.AF_UNIX:
        return False
    return not file.name and not file.peer()


def _shown(file: File) -> str:
    if not isinstance(file, SocketFile):
        return f"a {type(file).__name__}"
    peer = file.peer()
    return f"a socket at {file.name!r}" + (f", connected to {peer!r}" if peer is not None else "")


def swallowed_cancellations(tasks: Iterable[asyncio.Task[Any]]) -> list[str]:
    """Return a line for each task that was cancelled, and ended as if it had not been."""
    return [
        f"task {task.get_name()!r} was cancelled, and ended without CancelledError"
        for task in tasks
        if task.done() and not task.cancelled() and task.exception() is None and task.cancelling()
    ]
