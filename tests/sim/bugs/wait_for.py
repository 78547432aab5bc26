"""CPython 3.11: `asyncio.wait_for` loses a cancellation that comes together with the result."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

CONSUMERS, ITEMS = 3, 20


async def main(world: Any) -> None:
    """Take items from a queue with timeouts, and end the consumers: none survives, nothing is lost."""
    queue: asyncio.Queue[int] = asyncio.Queue()
    got: list[int] = []

    async def consume() -> None:
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                got.append(await asyncio.wait_for(queue.get(), 0.005))
            await asyncio.sleep(world.choose(3, "pause") * 0.001)

    consumers = [asyncio.create_task(consume()) for _ in range(CONSUMERS)]
    for number in range(ITEMS):
        queue.put_nowait(number)
        await asyncio.sleep((1 + world.choose(5, "gap")) * 0.001)
    for task in consumers:
        task.cancel()
    _, pending = await asyncio.wait(consumers, timeout=1)
    assert not pending, "a cancellation was hidden"
    left = []
    while not queue.empty():
        left.append(queue.get_nowait())
    assert sorted(got + left) == list(range(ITEMS)), "an item was lost"
