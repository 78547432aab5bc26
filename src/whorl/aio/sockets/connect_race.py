"""A race of attempts to connect ("happy eyeballs"): each starts a while after the one before.

It does what ``asyncio.staggered.staggered_race`` does, which leaves a connection open if it succeeds in the
turn in which the race is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop

Attempt: TypeAlias = Callable[[], Coroutine[Any, Any, Any]]


async def first_of(
    loop: AnyLoop, attempts: Iterable[Attempt], delay: float, drop: Callable[[Any], object]
) -> Any:
    """Return the result of the first attempt that succeeds, or None if all fail.

    The next attempt starts when the last one fails, or after `delay` seconds. When this returns, all have
    ended, and `drop` was called for each result that nobody gets.
    """
    tasks: list[asyncio.Task[Any]] = []
    winner: asyncio.Task[Any] | None = None
    try:
        for attempt in attempts:
            tasks.append(loop.create_task(attempt()))
            winner = await _winner(loop, tasks, delay)
            if winner is not None:
                break
        else:
            if tasks:
                winner = await _winner(loop, tasks, None)
    except BaseException:
        await _end(tasks, drop)
        raise
    if winner is None:
        return None
    tasks.remove(winner)
    cancellation = await _end(tasks, drop)
    if cancellation is not None:
        drop(winner.result())
        raise cancellation
    return winner.result()


async def _winner(
    loop: AnyLoop, tasks: list[asyncio.Task[Any]], delay: float | None
) -> asyncio.Task[Any] | None:
    """Return the first task that succeeds; None if the next may start, or without a delay, if all failed."""
    left = delay
    is_time = left is not None and left <= 0
    deadline = 0.0 if delay is None else loop.time() + delay
    while True:
        running = [task for task in tasks if not task.done()]
        for task in tasks:
            if task.done() and _has_succeeded(task):
                return task
        if is_time or not running or (delay is not None and tasks[-1].done()):
            return None
        await asyncio.wait(running, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if delay is not None:
            left = deadline - loop.time()
            is_time = left <= 0


def _has_succeeded(task: asyncio.Task[Any]) -> bool:
    """Return whether a task that is done has a result."""
    return not task.cancelled() and task.exception() is None


async def _end(
    tasks: list[asyncio.Task[Any]], drop: Callable[[Any], object]
) -> asyncio.CancelledError | None:
    """Cancel tasks, wait until they have ended, and drop their results; return a cancellation of the wait."""
    cancellation: asyncio.CancelledError | None = None
    for task in tasks:
        task.cancel()
    while running := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(running)
        except asyncio.CancelledError as error:
            cancellation = error
    for task in tasks:
        if _has_succeeded(task):
            drop(task.result())
    return cancellation
