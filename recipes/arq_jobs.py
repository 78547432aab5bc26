"""Jobs of arq in Redis, and the worker that does them.

$ REDIS_URL=redis://127.0.0.1:6379 python arq_jobs.py
"""

# /// script
# dependencies = ["arq", "whorl-loop"]
# ///

import asyncio
import os
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker

import whorl

REDIS = RedisSettings.from_dsn(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))


async def add(context: dict[str, Any], left: int, right: int) -> int:
    assert isinstance(asyncio.get_running_loop(), whorl.EventLoop)
    return left + right


async def main() -> None:
    async with await create_pool(REDIS) as pool:
        job = await pool.enqueue_job("add", 2, 3)
        worker = Worker([add], redis_pool=pool, burst=True, handle_signals=False)
        await worker.async_run()
        assert await job.result(timeout=10) == 5


if __name__ == "__main__":
    whorl.run(main())
