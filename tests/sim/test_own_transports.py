"""Whorl's own transports in worlds with faults: data comes in order and complete, or with an error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.sim.programs.own_transports import ALL
from whorl import sim

Main = Callable[[Any], Coroutine[Any, Any, Any]]


@pytest.mark.parametrize("program", ALL)
def test_data_comes_in_order_and_complete(program: Main) -> None:
    for seed in range(5):
        sim.run(program, seed=seed, faults="swarm").check()


@pytest.mark.parametrize("faults", [sim.Faults(short=0.3), sim.Faults(again=0.3)], ids=["short", "again"])
def test_refused_write_hears_of_room_that_comes_later(faults: sim.Faults) -> None:
    async def main(world: Any) -> int:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(1)
            while await reader.read(1000):
                await asyncio.sleep(0.001)
            writer.close()

        away = world.host("server")
        server = await away.run(asyncio.start_server, serve, "server", 7)
        _, writer = await asyncio.open_connection("server", 7)
        for _ in range(40):
            writer.write(bytes(10_000))
            await writer.drain()
        writer.close()
        await writer.wait_closed()
        server.close()
        await asyncio.sleep(5)
        return 40

    for seed in range(5):
        assert sim.run(main, seed=seed, faults=faults).check() == 40
