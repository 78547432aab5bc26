"""redis-py: clients that share a pool, and a small server of redis's protocol."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import redis
from redis import asyncio as redis_client

from tests.sim.programs.bearing import attempts

CLIENTS, COMMANDS = 3, 6


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer GET with a value made of the key, and anything else with OK."""
    with contextlib.suppress(ConnectionError, OSError, asyncio.IncompleteReadError):
        while line := await reader.readline():
            words = []
            for _ in range(int(line[1:])):
                size = int((await reader.readline())[1:])
                words.append((await reader.readexactly(size + 2))[:-2])
            await asyncio.sleep(0.001)
            if words[0].upper() == b"GET":
                value = b"v:" + words[1]
                writer.write(b"$%d\r\n%s\r\n" % (len(value), value))
            elif words[0].upper() == b"HELLO":
                writer.write(b"%1\r\n$5\r\nproto\r\n:3\r\n")
            else:
                writer.write(b"+OK\r\n")
            await writer.drain()
    writer.close()


async def main(world: Any) -> int:
    """Ask for values; each answer belongs to its command."""
    server = None
    async for attempt in attempts():
        with attempt:
            server = await asyncio.start_server(serve, "10.0.0.1", 6379)
    assert server is not None
    client = redis_client.Redis(host="main", port=6379, max_connections=4)
    done = 0

    async def commands(number: int) -> None:
        nonlocal done
        for place in range(COMMANDS):
            async for attempt in attempts(redis.exceptions.RedisError):
                with attempt:
                    key = f"k{number}.{place}"
                    value = await client.get(key)
                    assert value == f"v:{key}".encode(), f"asked for {key}, got {value}"
                    done += 1

    await asyncio.gather(*(commands(number) for number in range(CLIENTS)))
    await client.aclose()
    server.close()
    assert done == CLIENTS * COMMANDS
    return done
