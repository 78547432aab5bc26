"""Orders that seeds try, and orders that they never do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.sim.running import programs
from whorl import sim
from whorl.sim.chance.faults import EDGE

STRATEGIES = pytest.mark.parametrize(
    "strategy", [sim.Random(0.9), sim.Pct(), sim.Edge()], ids=["random", "pct", "edge"]
)
SEEDS = 60


def values(main: Callable[..., Any], strategy: Any = None, seeds: int = 50) -> set[Any]:
    """Return what a program returns with many seeds."""
    return {sim.run(main, seed=seed, strategy=strategy).check() for seed in range(seeds)}


@STRATEGIES
def test_callbacks_of_call_soon_keep_their_order(strategy: Any) -> None:
    async def main() -> tuple[int, ...]:
        loop, order = asyncio.get_running_loop(), []
        for number in range(3):
            loop.call_soon(order.append, number)
        await asyncio.sleep(0.001)
        return tuple(order)

    assert values(main, strategy, SEEDS) == {(0, 1, 2)}


@STRATEGIES
def test_tasks_of_a_queue_get_its_items_in_order(strategy: Any) -> None:
    async def main() -> tuple[tuple[int, int], ...]:
        queue: asyncio.Queue[int] = asyncio.Queue()
        got: list[tuple[int, int]] = []

        async def take(worker: int) -> None:
            got.append((worker, await queue.get()))

        tasks = [asyncio.create_task(take(worker)) for worker in range(3)]
        await asyncio.sleep(0.001)
        for item in range(3):
            queue.put_nowait(item)
        await asyncio.gather(*tasks)
        return tuple(got)

    assert values(main, strategy, SEEDS) == {((0, 0), (1, 1), (2, 2))}


@STRATEGIES
def test_a_lock_is_taken_in_the_order_of_waiting(strategy: Any) -> None:
    async def main() -> tuple[int, ...]:
        lock, order = asyncio.Lock(), []

        async def take(worker: int) -> None:
            async with lock:
                order.append(worker)
                await asyncio.sleep(0.001)

        await asyncio.gather(*(take(worker) for worker in range(3)))
        return tuple(order)

    assert values(main, strategy, SEEDS) == {(0, 1, 2)}


def test_timers_of_one_time_come_in_each_order() -> None:
    async def main() -> tuple[int, ...]:
        loop, order = asyncio.get_running_loop(), []
        when = loop.time() + 1
        for number in range(2):
            loop.call_at(when, order.append, number)
        await asyncio.sleep(2)
        return tuple(order)

    assert values(main) == {(0, 1), (1, 0)}


def test_timers_of_different_times_keep_their_order() -> None:
    async def main() -> tuple[int, ...]:
        loop, order = asyncio.get_running_loop(), []
        when = loop.time() + 1
        for number in range(3):
            loop.call_at(when + number * 1e-9, order.append, number)
        await asyncio.sleep(2)
        return tuple(order)

    assert values(main) == {(0, 1, 2)}


def test_timers_of_one_time_are_due_at_that_time() -> None:
    async def main() -> bool:
        loop = asyncio.get_running_loop()
        when = loop.time() + 1
        timers = [loop.call_at(when, int) for _ in range(3)]
        early = []
        loop.call_at(when, lambda: early.append(loop.time() < when))
        await asyncio.sleep(2)
        return any(early) or any(abs(timer.when() - when) > 1e-12 for timer in timers)

    assert values(main) == {False}


def test_sockets_ready_in_one_poll_come_in_each_order() -> None:
    async def main() -> tuple[int, ...]:
        return tuple(await programs.ready_order(2))

    assert values(main) == {(0, 1), (1, 0)}


def test_the_set_of_wait_comes_in_each_order() -> None:
    async def main() -> tuple[Any, ...]:
        tasks = [asyncio.create_task(asyncio.sleep(0.01, number)) for number in range(3)]
        done, _ = await asyncio.wait(tasks)
        return tuple(task.result() for task in done)

    assert len(values(main, seeds=150)) == 6


def test_edge_ends_turns_at_the_edges_of_time_with_each_seed() -> None:
    for seed in range(20):
        result = sim.run(programs.calm, seed=seed, strategy=sim.Edge())
        assert result.tape.decisions["cpu/model", 0] == EDGE


async def turns_of_three_timers(world: sim.World) -> int:
    """Return in how many turns three timers of different times fired."""
    loop, fired = asyncio.get_running_loop(), []
    for number in (2, 3, 4):
        loop.call_later(number / 1000, lambda: fired.append(world.turns))
    await asyncio.sleep(0.01)
    return len(set(fired))


def test_a_turn_up_to_an_edge_may_pass_several_so_that_one_poll_finds_them_together() -> None:
    runs = [sim.run(turns_of_three_timers, seed=seed, cpu=sim.Cpu("edge", 0.6)) for seed in range(SEEDS)]
    assert {run.check() for run in runs} == {1, 2, 3}


def test_a_turn_up_to_an_edge_goes_by_the_clock_of_its_host() -> None:
    async def main(world: sim.World) -> int:
        await asyncio.sleep(100)
        other = world.host("other", drift_ppm=-1000)  # 0.1 s late by now
        return await other.run(turns_of_three_timers, world)  # type: ignore[no-any-return]

    runs = [sim.run(main, seed=seed, cpu=sim.Cpu("edge", 0.6)) for seed in range(SEEDS)]
    assert {run.check() for run in runs} == {1, 2, 3}


def test_edge_is_replayed_by_its_tape() -> None:
    result = sim.run(programs.writes_last_come_first, seed=3, strategy=sim.Edge())
    assert sim.replay(programs.writes_last_come_first, result.tape).digest == result.digest


def test_pct_keeps_one_order_until_it_changes() -> None:
    async def main() -> bool:
        orders = [await programs.ready_order(2) for _ in range(6)]
        return len({tuple(order) for order in orders}) == 1

    kept = [sim.run(main, seed=seed, faults="none", strategy=sim.Pct(depth=1)).value for seed in range(10)]
    assert all(kept)


@pytest.mark.slow
def test_pct_finds_a_bug_of_three_orders_more_often_than_random_picks() -> None:
    def found(strategy: Any) -> int:
        runs = (
            sim.run(programs.needs_three_orders, seed=seed, strategy=strategy, faults="none")
            for seed in range(300)
        )
        return sum(run.failed for run in runs)

    by_priorities, at_random = found(sim.Pct(depth=3)), found(sim.Random())
    assert by_priorities >= max(1, 3 * at_random)


def test_delay_finds_an_update_that_is_lost() -> None:
    report = sim.check(programs.loses_an_update, strategy=sim.Delay(bound=2), shrink_s=0)
    assert report.failed
    assert len(report.failures[0].tape.decisions) == 1


def test_delay_says_how_many_schedules_there_are() -> None:
    report = sim.check(programs.loses_no_update, strategy=sim.Delay(bound=2))
    assert not report.failed
    assert report.schedules == report.seeds > 1
    assert f"complete: {report.schedules} schedules" in str(report)


def test_delay_tries_no_schedule_twice() -> None:
    seen = []

    async def main() -> None:
        order = tuple(await programs.ready_order(3))
        seen.append(order)

    report = sim.check(main, strategy=sim.Delay(bound=2, kinds=("events",)), verify=False)
    assert report.schedules == len(seen) == 6
    assert len(set(seen)) == 6


def test_delay_of_zero_runs_the_calm_schedule_only() -> None:
    assert sim.check(programs.loses_an_update, strategy=sim.Delay(bound=0)).schedules == 1
