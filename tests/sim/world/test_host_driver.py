"""The driver of a simulated host's loop: hooks for asynchronous generators, debug mode."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

from whorl import sim


def test_hooks_are_those_of_the_host_whose_turn_it_is() -> None:
    seen: list[tuple[Any, Any]] = []

    async def look() -> None:
        for _ in range(3):
            await asyncio.sleep(0.1)
            loop: Any = asyncio.get_running_loop()
            hooks = sys.get_asyncgen_hooks()
            seen.append((hooks, (loop._asyncgen_firstiter_hook, loop._asyncgen_finalizer_hook)))

    async def main(world: sim.World) -> None:
        await asyncio.gather(*(world.host(name).run(look) for name in ("main", "a", "b")))

    sim.run(main).check()
    assert len(seen) == 9
    assert all(tuple(hooks) == expected for hooks, expected in seen)


def test_hooks_of_the_thread_come_back() -> None:
    former = sys.get_asyncgen_hooks()
    hooks = (lambda generator: None, lambda generator: None)
    sys.set_asyncgen_hooks(*hooks)
    try:
        sim.run(lambda: asyncio.sleep(1)).check()
        assert tuple(sys.get_asyncgen_hooks()) == hooks
    finally:
        sys.set_asyncgen_hooks(*former)


def test_generator_that_nobody_finished_is_closed_in_its_loop() -> None:
    closed: list[Any] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            closed.append(asyncio.get_running_loop())

    async def leave() -> Any:
        async for _ in numbers():
            break
        await asyncio.sleep(1)
        return asyncio.get_running_loop()

    async def main(world: sim.World) -> Any:
        return await world.host("a").run(leave)

    assert closed == [sim.run(main).check()]


def test_origins_are_tracked_only_in_a_turn_of_a_loop_in_debug_mode() -> None:
    async def main() -> int:
        asyncio.get_running_loop().set_debug(True)
        await asyncio.sleep(1)
        return sys.get_coroutine_origin_tracking_depth()

    assert sim.run(main).check() > 0
    assert sys.get_coroutine_origin_tracking_depth() == 0
