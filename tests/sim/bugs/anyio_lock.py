"""anyio 4.13: a lock that is given to a waiter while that is cancelled is never free again."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import anyio

WORKERS, ROUNDS = 5, 3


async def main(world: Any) -> None:
    """Wait for a lock with timeouts; all workers end."""
    lock = anyio.Lock()
    ended = []

    async def worker(number: int) -> None:
        for _ in range(ROUNDS):
            await asyncio.sleep(world.choose(4, "pause") * 0.001)
            patience = world.choose(9, "patience")
            with contextlib.suppress(asyncio.TimeoutError):
                async with asyncio.timeout(patience % 5 * 0.001 if 0 < patience < 5 else None):
                    async with lock:
                        await asyncio.sleep(world.choose(3, "work") * 0.001)
        ended.append(number)

    await asyncio.gather(*(worker(number) for number in range(WORKERS)))
    assert len(ended) == WORKERS
