"""A task that waits too long is a finding, if the run has a limit for that."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from whorl import sim

LIMIT = 60.0


async def hidden_hang() -> None:
    """Wait for something that never comes, with a limit that ends well."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(300):
            await asyncio.Event().wait()


def found(main: object, stall_s: float | None = LIMIT) -> list[sim.Finding]:
    return sim.run(main, faults="none", stall_s=stall_s).findings  # type: ignore[arg-type]


def test_wait_behind_a_long_timeout_is_found() -> None:
    [finding] = found(hidden_hang)
    assert finding.kind == "stall"
    assert finding.host == "main"
    assert finding.text.startswith("longer than 60 s: task 'main' waits at ")
    assert f"{__file__}:" in finding.text
    assert finding.text.endswith("in hidden_hang (Event.wait)")


def test_wait_is_found_although_other_tasks_go_on() -> None:
    async def main() -> None:
        async def ticks() -> None:
            while True:
                await asyncio.sleep(1)

        ticking = asyncio.create_task(ticks())
        await hidden_hang()
        ticking.cancel()

    [finding] = found(main)
    assert LIMIT < finding.time_s <= LIMIT * 1.1


def test_run_without_a_limit_may_wait() -> None:
    assert found(hidden_hang, None) == []


def test_wait_within_the_limit_is_no_finding() -> None:
    assert found(hidden_hang, 300) == []


def test_waits_one_after_another_are_no_finding() -> None:
    async def main() -> None:
        for _ in range(10):
            future = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(LIMIT - 1, future.set_result, None)
            await future

    assert found(main) == []


@pytest.mark.parametrize("way", ["sleep", "task", "gather", "wait", "wait_for", "group"])
def test_sleep_is_no_finding_and_nor_is_a_wait_for_a_task_that_sleeps(way: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        sleeping = loop.create_task(asyncio.sleep(1000))
        if way == "sleep":
            await asyncio.sleep(1000)
        elif way == "task":
            await sleeping
        elif way == "gather":
            await asyncio.gather(sleeping, asyncio.sleep(500))
        elif way == "wait":
            await asyncio.wait([sleeping])
        elif way == "wait_for":
            await asyncio.wait_for(sleeping, 2000)
        else:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(1000))
        await sleeping

    assert found(main) == []


def test_server_and_tasks_of_other_hosts_may_wait() -> None:
    async def serve(host: sim.Host) -> None:
        async with await asyncio.start_server(print, host.address, 80) as server:
            await server.serve_forever()

    async def main(world: sim.World) -> None:
        world.host("other", boot=lambda host: asyncio.Event().wait())
        serving = asyncio.create_task(serve(world.main))
        await asyncio.sleep(1000)
        serving.cancel()
        await asyncio.wait([serving])

    assert found(main) == []


@pytest.mark.parametrize("limit", [0, -1, float("nan"), float("inf"), 1e300])
def test_limit_that_is_no_time_is_refused(limit: float) -> None:
    with pytest.raises(ValueError, match="stall_s must be a positive number of seconds"):
        found(hidden_hang, limit)


@pytest.mark.parametrize("limit", [1e-9, 1e9])
def test_limit_may_be_short_or_long(limit: float) -> None:
    assert len(found(hidden_hang, limit)) == (limit < 1)


def test_stall_is_shrunk_and_its_replay_knows_the_limit() -> None:
    async def main(world: sim.World) -> None:
        if world.choose(3, "way") == 2:
            await hidden_hang()

    report = sim.check(main, seeds=50, stall_s=LIMIT)
    assert report.first is not None
    assert report.first.finding.kind == "stall"
    assert "stall_s=60.0" in report.replay_command
