"""Jobs of taskiq, in memory.

$ python taskiq_jobs.py
"""

# /// script
# dependencies = ["taskiq", "whorl-loop"]
# ///

import asyncio

from taskiq import InMemoryBroker

import whorl

broker = InMemoryBroker()


@broker.task
async def add(left: int, right: int) -> int:
    assert isinstance(asyncio.get_running_loop(), whorl.EventLoop)
    return left + right


async def main() -> None:
    await broker.startup()
    job = await add.kiq(2, 3)
    result = await job.wait_result(timeout=10)
    assert result.return_value == 5
    await broker.shutdown()


if __name__ == "__main__":
    whorl.run(main())
