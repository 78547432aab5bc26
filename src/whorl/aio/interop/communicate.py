"""`communicate` of asyncio's processes, which may be cancelled and called again on every Python.

asyncio's own forgets what it has read when it is cancelled. The class of processes is asyncio's, and no loop
makes its objects. So a function here stands in the place of the method. It keeps what it reads of programs
that Whorl's loops have started; for others it calls the method.
"""

from __future__ import annotations

import asyncio
import functools
from types import FunctionType
from typing import Any

from whorl.aio.interop import at_import
from whorl.aio.interop.at_import import logger

_Process: Any = at_import.Process
_NAMES = {"_feed_stdin", "_noop", "stdout", "_read_stream", "stderr", "tasks", "gather", "wait"}
_stock: Any = at_import.communicate
_READ_SIZE = 64 * 1024  # from an object in the place of a stream
#: Until Python 3.12, the program's input stays open without data for it.
_CLOSES_INPUT = False


class Communication:
    """The part of a `communicate` that outlives its cancellation."""

    __slots__ = ("feeds", "input", "output")

    def __init__(self, feeds: bool, data: Any) -> None:
        self.feeds: bool = feeds
        self.input: Any = data  # until it is in the pipe's transport
        self.output: dict[int, list[bytes]] = {1: [], 2: []}


async def communicate(
    self: Any,
    input: Any = None,  # noqa: A002 - the name is asyncio's
) -> tuple[bytes | None, bytes | None]:
    """Send a program its input, and return all output and all errors that it wrote, once it has exited.

    After a cancellation, another call goes on where that one was, and raises ValueError for more input.
    Source: ``asyncio.subprocess.Process.communicate``.
    """
    transport = self._transport
    is_ours = getattr(type(transport), "_keeps_communication", False)
    if not is_ours or type(self)._read_stream is not at_import.read_stream:
        return await _stock(self, input)  # type: ignore[no-any-return]
    kept = transport._communication
    if kept is None:
        feeds = self.stdin is not None if _CLOSES_INPUT else input is not None
        kept = transport._communication = Communication(feeds, input)
    elif input:
        raise ValueError("cannot send input after starting communication")
    streams = {fd: stream for fd, stream in ((1, self.stdout), (2, self.stderr)) if stream is not None}
    steps = [_read(self, fd, stream, kept.output[fd]) for fd, stream in streams.items()]
    if kept.feeds:
        steps.append(_feed(self, kept))
    await asyncio.gather(*steps)
    await self.wait()
    transport._communication = None
    output, errors = (b"".join(kept.output[fd]) if fd in streams else None for fd in (1, 2))
    return output, errors


async def _feed(process: Any, kept: Communication) -> None:
    data, kept.input = kept.input, None
    await process._feed_stdin(b"" if data is None else data)  # Until Python 3.12, None is no data.


async def _read(process: Any, fd: int, stream: Any, output: list[bytes]) -> None:
    """Read a stream up to its end, and close its pipe."""
    pipe = process._transport.get_pipe_transport(fd)
    name = "stdout" if fd == 1 else "stderr"
    if process._loop.get_debug():
        logger.debug("%r communicate: read %s", process, name)
    while block := await stream.read(getattr(stream, "_limit", _READ_SIZE)):
        output.append(block)
    if process._loop.get_debug():
        logger.debug("%r communicate: close %s", process, name)
    pipe.close()


def replace_stock() -> None:
    """Let asyncio's processes use this, unless a program or a newer Python has another method there."""
    global _CLOSES_INPUT
    names = set(_stock.__code__.co_names) if type(_stock) is FunctionType else set()
    if names - {"stdin"} == _NAMES and vars(_Process).get("communicate") is _stock:
        _CLOSES_INPUT = "stdin" in names
        _Process.communicate = functools.update_wrapper(communicate, _stock)
