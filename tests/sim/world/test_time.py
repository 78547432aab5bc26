"""Virtual time: it passes in sleeps, in code that is said to take time, and never by itself."""

from __future__ import annotations

import asyncio
import datetime
import time

import pytest

from tests.sim.conftest import Run
from whorl import sim
from whorl.sim.errors import Livelock
from whorl.sim.world import turns


def test_hour_of_sleep_takes_an_hour_of_virtual_time(exact: Run) -> None:
    async def main(world: sim.World) -> float:
        began = time.monotonic()
        await asyncio.sleep(3600)
        return time.monotonic() - began

    assert exact(main) == pytest.approx(3600, abs=1e-5)


def test_all_clocks_of_a_host_agree(exact: Run) -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        began = [loop.time(), time.monotonic(), time.perf_counter(), time.time(), time.time_ns() / 1e9]
        await asyncio.sleep(10)
        ended = [loop.time(), time.monotonic(), time.perf_counter(), time.time(), time.time_ns() / 1e9]
        return [after - before for before, after in zip(began, ended, strict=True)]

    assert exact(main) == pytest.approx([10] * 5, abs=1e-4)


def test_calendar_shows_the_time_of_the_world(exact: Run) -> None:
    async def main() -> tuple[datetime.datetime, str]:
        await asyncio.sleep(3000)
        return datetime.datetime.now(datetime.UTC), time.strftime("%Y-%m-%d %H:%M")

    moment, text = exact(main)
    assert type(moment).__name__ == "datetime"
    assert moment.replace(second=0, microsecond=0) == datetime.datetime(
        2030, 1, 1, 0, 50, tzinfo=datetime.UTC
    )
    assert text == "2030-01-01 00:50"


def test_clocks_are_real_again_after_a_run(exact: Run) -> None:
    before = time.monotonic, time.time, datetime.datetime

    async def main() -> None:
        assert time.monotonic is not before[0]

    exact(main)
    assert (time.monotonic, time.time, datetime.datetime) == before


def test_time_sleep_makes_the_loop_late(exact: Run) -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        late = loop.create_future()
        loop.call_later(1, lambda: late.set_result(loop.time() - began))
        time.sleep(2)
        return await late  # type: ignore[no-any-return]

    assert exact(main) == pytest.approx(2, abs=1e-4)


def test_loop_that_waits_for_the_clock_ends(exact: Run) -> None:
    async def main() -> None:
        deadline = time.monotonic() + 0.001
        while time.monotonic() < deadline:
            pass

    exact(main)


def test_turns_take_time_of_the_seed() -> None:
    async def main(world: sim.World) -> float:
        for _ in range(200):
            await asyncio.sleep(0)
        return world.now()

    times = [sim.run(main, seed=seed).check() for seed in range(12)]
    assert min(times) < 0.001  # Some seeds let code take no time,
    assert max(times) > 0.02  # and some a lot.
    assert sim.run(main, seed=3).check() == times[3]


def test_skewed_host_shows_another_date_and_a_drifting_one_another_pace(exact: Run) -> None:
    async def main(world: sim.World) -> tuple[float, float]:
        async def look() -> tuple[float, float]:
            return time.time(), time.monotonic()

        other = world.host("other", skew_s=-60, drift_ppm=1000)
        here, there = await look(), await other.run(look)
        await asyncio.sleep(1000)
        here_later, there_later = await look(), await other.run(look)
        return there[0] - here[0], (there_later[1] - there[1]) - (here_later[1] - here[1])

    skew, drift = exact(main)
    assert skew == pytest.approx(-60, abs=0.01)
    assert drift == pytest.approx(1, abs=0.01)


def test_clock_that_jumps_leaves_timers_alone(exact: Run) -> None:
    async def main(world: sim.World) -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        date, began = time.time(), loop.time()
        loop.call_later(1, world.main.jump, 3600)
        await asyncio.sleep(2)
        return time.time() - date, loop.time() - began

    assert exact(main) == pytest.approx((3602, 2), abs=1e-3)


def test_run_longer_than_its_limit_is_a_finding() -> None:
    async def main() -> None:
        await asyncio.sleep(1000)

    [finding] = sim.run(main, limit_s=100).findings
    assert (finding.kind, finding.time_s) == ("outoftime", 100)
    assert finding.text == "the run takes more than 100 virtual seconds (limit_s)"


def test_run_of_more_turns_than_allowed_is_a_finding() -> None:
    [finding] = sim.run(spin, turns=100).findings
    assert str(finding).endswith("the run takes more than 100 turns (turns)")


def test_run_that_takes_too_much_real_time_is_a_finding_that_is_not_shrunk() -> None:
    report = sim.check(spin, real_s=0.0001, seeds=1)
    assert report.failures[0].finding.kind == "outofrealtime"
    assert "(real_s)" in report.failures[0].finding.text
    assert report.shrunk is None


def test_world_in_which_nothing_can_happen_is_a_deadlock_that_names_its_tasks() -> None:
    lock = asyncio.Lock()

    async def hold() -> None:
        async with lock:
            await asyncio.get_running_loop().create_future()

    async def main() -> None:
        holder = asyncio.create_task(hold(), name="the holder")
        await asyncio.sleep(1)
        async with lock:
            await holder

    [finding] = sim.run(main).findings
    assert finding.kind == "deadlock"
    assert "'the holder' waits at" in finding.text
    assert "test_time.py" in finding.text
    assert "hold for a future" in finding.text


async def spin() -> None:
    """Be ready in each turn, for ever."""
    while True:
        await asyncio.sleep(0)


@pytest.mark.parametrize("model", ["none", "random", "grid", "edge"])
def test_tasks_that_spin_are_a_livelock(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "LIVELOCK_TURNS", 5000)

    cpu = sim.Cpu(model, rate=0.5)
    [finding] = sim.run(spin, faults="none", cpu=cpu, turns=20_000).findings
    assert finding.kind == "livelock"


@pytest.mark.parametrize("model", ["none", "random", "grid", "edge"])
def test_tasks_that_wait_for_timers_between_turns_are_no_livelock(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "LIVELOCK_TURNS", 100)

    async def main() -> None:
        for _ in range(50):
            await asyncio.sleep(0.01)
            for _ in range(20):
                await asyncio.sleep(0)

    assert not sim.run(main, faults="none", cpu=sim.Cpu(model, rate=0.5)).findings


def test_loop_that_runs_by_itself_and_waits_for_timers_is_no_livelock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "LIVELOCK_TURNS", 100)

    async def main() -> str:
        for _ in range(300):
            await asyncio.sleep(0.01)
        return "done"

    with sim.open_world(faults="none") as world:
        assert world.main.loop.run_until_complete(main()) == "done"


@pytest.mark.parametrize("model", ["none", "random", "grid", "edge"])
def test_loop_that_runs_by_itself_and_spins_is_a_livelock(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "LIVELOCK_TURNS", 1000)

    with (
        sim.open_world(faults="none", cpu=sim.Cpu(model, rate=0.5), turns=5000) as world,
        pytest.raises(Livelock),
    ):
        world.main.loop.run_until_complete(spin())
