"""redis-py before 4.5.5: the answer to a command that was cancelled goes to the next one (CVE-2023-28859)."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import redis
from redis import asyncio as redis_client

from tests.sim.programs.redis_commands import serve

CLIENTS, COMMANDS = 3, 6


async def main(world: Any) -> None:
    """Ask for values with a timeout; each answer that comes belongs to its command."""
    server = await asyncio.start_server(serve, "10.0.0.1", 6379)
    client = redis_client.Redis(host="main", port=6379, max_connections=4)

    async def commands(number: int) -> None:
        for place in range(COMMANDS):
            key = f"k{number}.{place}"
            with contextlib.suppress(asyncio.TimeoutError, redis.exceptions.ConnectionError):
                async with asyncio.timeout(random.random() * 0.02):
                    value = await client.get(key)
                    assert value == f"v:{key}".encode(), f"asked for {key}, got {value}"

    await asyncio.gather(*(commands(number) for number in range(CLIENTS)))
    await client.connection_pool.disconnect()
    server.close()
