"""The leaks of a run: what nobody closed, and cancellations that were swallowed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whorl.sim.files.sockets import SocketFile
from whorl.sim.wire.timeline import SECOND

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Mapping

    from whorl.sim.files.file import DescriptorTable, File

#: A program has so much time to close a connection after its peer, in nanoseconds.
LATE = SECOND


def being_left(table: DescriptorTable, closing_fds: set[int], now: int) -> set[int]:
    """Return the descriptors of connections that the peer is closing, or closed a short time ago.

    `closing_fds` are those of transports that are being closed.
    """
    left = set()
    closing = {table.files.get(fd) for fd in closing_fds}
    for fd, file in table.files.items():
        if not isinstance(file, SocketFile):
            continue
        peer, closed_at = file.left_by()
        if (peer is not None and peer in closing) or (closed_at >= 0 and now - closed_at < LATE):
            left.add(fd)
    return left


def open_descriptors(table: DescriptorTable, known: frozenset[int], made_at: Mapping[int, str]) -> list[str]:
    """Return a text for each descriptor that is open and not known.

    `made_at` has the lines that made sockets, by descriptor.
    """
    return [
        f"{fd}, {_shown(file, made_at.get(fd))}"
        for fd, file in sorted(table.files.items())
        if fd not in known
    ]


def _shown(file: File, line: str | None) -> str:
    if not isinstance(file, SocketFile):
        return f"a {type(file).__name__}"
    peer = file.peer()
    text = f"a socket at {file.name!r}" + (f", connected to {peer!r}" if peer else "")
    return f"{text}, made at {line}" if line else text


def swallowed_cancellations(tasks: Iterable[asyncio.Task[Any]]) -> list[str]:
    """Return a text for each task that was cancelled, and ended as if it had not been."""
    swallowed = [
        task
        for task in dict.fromkeys(tasks)
        if task.done() and not task.cancelled() and task.exception() is None and task.cancelling()
    ]
    return [f"task {task.get_name()!r}{_place(task)} ended without CancelledError" for task in swallowed]


def _place(task: asyncio.Task[Any]) -> str:
    """Return which function a task ran, and where it stands."""
    code = getattr(task.get_coro(), "cr_code", None)
    return "" if code is None else f" ({code.co_qualname} at {code.co_filename}:{code.co_firstlineno})"
