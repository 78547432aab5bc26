"""One loop under all loads: the process that a soak watches. Prints its figures as JSON at the end.

usage: python -m tests.soak.worker LOOP SECONDS
"""

from __future__ import annotations

import asyncio
import gc
import json
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.soak.loads import LOADS, Operation

PAGE = os.sysconf("SC_PAGE_SIZE")
PAUSE = 0.01  # between two operations of one load: the loads are to run together, not to fill a core
SAMPLES = 240  # of memory, over the whole time
STEP = 1.05  # between the bounds of two latencies that are counted apart
PERCENTILES = (50, 99, 99.9, 100)


class Latencies:
    """Counts latencies in steps of 5 %, so that an hour needs no more memory than a second."""

    def __init__(self) -> None:
        self.count = 0
        self._steps: Counter[int] = Counter()

    def note(self, seconds: float) -> None:
        """Count one latency."""
        self.count += 1
        self._steps[math.ceil(math.log(max(seconds, 1e-6), STEP))] += 1

    def percentile(self, percent: float) -> float:
        """Return the upper bound of a percentile, in seconds."""
        wanted = self.count * percent / 100
        seen = 0
        for step in sorted(self._steps):
            seen += self._steps[step]
            if seen >= wanted:
                return STEP**step
        return 0.0


def resident_bytes() -> int:
    """Return how much memory the process has in use."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE


def open_descriptors() -> int:
    """Return the number of open descriptors."""
    return len(os.listdir("/proc/self/fd"))


def factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the function that makes the loops of that name."""
    if name == "asyncio":
        return asyncio.new_event_loop
    import whorl

    return whorl.new_event_loop


async def _repeat(operation: Operation, latencies: Latencies, ends: float) -> None:
    while time.monotonic() < ends:
        began = time.monotonic()
        await operation()
        latencies.note(time.monotonic() - began)
        await asyncio.sleep(PAUSE)


async def soak(seconds: float) -> dict[str, Any]:
    """Run all loads together; return the figures."""
    loop = asyncio.get_running_loop()
    errors: list[str] = []
    loop.set_exception_handler(lambda _, context: errors.append(f"{context!r:.300}"))
    for prepare in LOADS.values():  # what a loop makes at its first use, and keeps, is not left over
        async with prepare() as operation:
            await operation()
    before = (open_descriptors(), len(asyncio.all_tasks()))
    began = time.monotonic()
    ends = began + seconds
    found = {name: Latencies() for name in LOADS}
    memory: list[tuple[float, int]] = []

    async def load(name: str) -> None:
        try:
            async with LOADS[name]() as operation:
                await _repeat(operation, found[name], ends)
        except Exception as error:
            errors.append(f"{name}: {error!r:.300}")

    async def sample() -> None:
        while time.monotonic() < ends:
            memory.append((time.monotonic() - began, resident_bytes()))
            await asyncio.sleep(seconds / SAMPLES)

    await asyncio.gather(sample(), *(load(name) for name in LOADS))
    await asyncio.sleep(0.1)  # connections that were closed are gone after a turn or two
    gc.collect()
    return {
        "latencies": {
            name: {"count": each.count, "percentiles": [each.percentile(each_of) for each_of in PERCENTILES]}
            for name, each in found.items()
        },
        "memory": memory,
        "before": before,
        "after": (open_descriptors(), len(asyncio.all_tasks())),
        "errors": errors,
    }


def main() -> None:
    name, seconds = sys.argv[1:]
    with asyncio.Runner(loop_factory=factory(name)) as runner:
        figures = runner.run(soak(float(seconds)))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
