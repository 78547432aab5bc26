"""A counter in Redis, a hundred times at once.

$ REDIS_URL=redis://127.0.0.1:6379 python redis_counter.py
"""

# /// script
# dependencies = ["redis", "whorl-loop"]
# ///

import asyncio
import os

from redis import asyncio as redis

import whorl


async def main() -> None:
    async with redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379")) as client:
        await client.delete("visits")
        await asyncio.gather(*(client.incr("visits") for _ in range(100)))
        assert int(await client.get("visits")) == 100


if __name__ == "__main__":
    whorl.run(main())
