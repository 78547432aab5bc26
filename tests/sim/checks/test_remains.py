"""Remarks on what a run leaves behind, and conditions that hold or do not."""

from __future__ import annotations

import asyncio
from typing import Any

from whorl import sim


def _remarks(main: Any) -> list[str]:
    result = sim.run(main, faults="none")
    result.check()
    return result.remarks


def test_connection_that_was_not_closed_is_remarked() -> None:
    kept: list[Any] = []

    async def main() -> None:
        server = await asyncio.start_server(lambda reader, writer: kept.append(writer), "10.0.0.1", 80)
        kept.append(await asyncio.open_connection("10.0.0.1", 80))
        server.close()

    assert any("connected to ('10.0.0.1', 80), was not closed" in each for each in _remarks(main))


def test_run_that_closes_everything_has_no_remark() -> None:
    async def main() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        async with await asyncio.start_server(answer, "10.0.0.1", 80):
            _, writer = await asyncio.open_connection("10.0.0.1", 80)
            writer.close()
            await writer.wait_closed()
            await asyncio.sleep(1)

    assert _remarks(main) == []


def test_task_that_swallows_its_cancellation_is_remarked() -> None:
    async def stubborn() -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            pass

    async def main() -> None:
        task = asyncio.create_task(stubborn(), name="stubborn")
        await asyncio.sleep(1)
        task.cancel()
        await task

    assert _remarks(main) == ["task 'stubborn' was cancelled, and ended without CancelledError"]


def test_timeout_that_takes_its_cancellation_back_is_not_remarked() -> None:
    async def main() -> None:
        try:
            async with asyncio.timeout(1):
                await asyncio.sleep(10)
        except TimeoutError:
            pass

    assert _remarks(main) == []


def test_condition_that_stops_holding_ends_the_run() -> None:
    async def main(world: sim.World) -> None:
        values = [0]
        world.always("it stays small", lambda: values[0] < 3)
        while True:
            await asyncio.sleep(1)
            values[0] += 1

    result = sim.run(main)
    assert [found.text for found in result.findings] == ["it stays small: it does not hold"]
    assert result.elapsed_s < 5


def test_condition_that_never_held_is_found_when_its_time_is_over() -> None:
    async def main(world: sim.World) -> None:
        world.eventually("it happens", lambda: False, within=5)
        await asyncio.sleep(100)

    result = sim.run(main)
    assert [found.kind for found in result.findings] == ["eventually"]
    assert 5 <= result.elapsed_s < 6
