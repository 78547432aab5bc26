"""AnyIO's task groups and streams.

$ python anyio_tasks.py
"""

# /// script
# dependencies = ["anyio", "whorl-loop"]
# ///

import asyncio

import anyio

import whorl


async def main() -> None:
    assert isinstance(asyncio.get_running_loop(), whorl.EventLoop)
    to_sum, numbers = anyio.create_memory_object_stream[int](10)

    async def produce() -> None:
        async with to_sum:
            for number in range(100):
                await to_sum.send(number)

    total = 0
    async with anyio.create_task_group() as group:
        group.start_soon(produce)
        async with numbers:
            async for number in numbers:
                total += number
    assert total == 4950


if __name__ == "__main__":
    anyio.run(main, backend_options={"loop_factory": whorl.new_event_loop})
