"""Waiting for the file system: how coroutines use the machine's requests.

A result that Linux has in memory comes in the next turn. The pool's threads do everything else. A cancelled
wait takes back a request that no thread has begun, and closes a file that was opened for it.
"""

from __future__ import annotations

import asyncio
import functools
import types
from collections.abc import Callable, Generator
from typing import Any

from whorl.aio.loop.event_loop import EventLoop
from whorl.handles.fs.request import FsRequest, Operation


def running_loop() -> EventLoop:
    """Return the running loop; raise RuntimeError if there is none, or it is not one of Whorl's."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, EventLoop):
        kind = f"{type(loop).__module__}.{type(loop).__qualname__}"
        raise RuntimeError(f"whorl.fs needs a running loop of Whorl's (whorl.run), and this is {kind}")
    return loop


@types.coroutine
def next_turn() -> Generator[None, None, None]:
    """Let the loop make a turn."""
    yield


async def await_call(function: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a function of `whorl.handles.fs`; raise its error."""
    loop = running_loop()
    return await await_request(loop, functools.partial(function, loop, *args))


async def await_operation(loop: EventLoop, operation: Operation) -> Any:
    """Return the result of an operation; raise its error."""
    return await await_request(loop, functools.partial(FsRequest, loop, operation))


async def await_request(loop: EventLoop, begin: Callable[..., FsRequest]) -> Any:
    """Begin a request and wait for its end."""
    future = loop.create_future()
    request = begin(callback=functools.partial(_settle, future))
    try:
        return await future
    except BaseException:
        if not future.done() and not loop.is_closed():
            future.cancel()
        if future.cancelled():
            request.cancel()
        elif future.done() and future.exception() is None:
            _give_back(request, future.result())
        raise
    finally:
        del future, request  # An error's traceback keeps this frame.


def _settle(
    future: asyncio.Future[Any], request: FsRequest, result: Any, error: BaseException | None
) -> None:
    if future.cancelled():
        if error is None:
            _give_back(request, result)
    elif error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def _give_back(request: FsRequest, result: Any) -> None:
    """Drop the result of a request whose caller is gone."""
    if request._operation.dispose is not None:
        request._operation.dispose(result)
