"""An asynchronous actor of Ray, whose process asks for uvloop.

$ whorl run --as-uvloop ray_actors.py
"""

# /// script
# dependencies = ["ray", "whorl-loop"]
# ///

import asyncio

import ray


@ray.remote
class Counter:
    def __init__(self) -> None:
        self.count = 0

    async def add(self, number: int) -> int:
        await asyncio.sleep(0)
        self.count += number
        return self.count

    async def loop(self) -> str:
        return type(asyncio.get_running_loop()).__module__


if __name__ == "__main__":
    ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR")
    counter = Counter.remote()
    assert ray.get(counter.loop.remote()) == "whorl.aio.loop.event_loop"
    assert max(ray.get([counter.add.remote(number) for number in range(100)])) == 4950
    ray.shutdown()
