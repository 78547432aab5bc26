"""Many runs: what `check` finds, in one process and in several."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from tests.sim.running import programs
from whorl import sim
from whorl.sim.running.batches import Outcome, outcomes
from whorl.sim.world.options import RunOptions


def test_a_program_without_a_bug_has_no_finding() -> None:
    report = sim.check(programs.calm, seeds=20)
    assert not report.failed
    assert (report.seeds, report.exit_code) == (20, 0)
    report.check()


def test_the_first_failing_seed_ends_it() -> None:
    report = sim.check(programs.chooses_seven, shrink_s=0)
    first = next(seed for seed in range(200) if sim.run(programs.chooses_seven, seed=seed).failed)
    assert report.found == {("exception", "ValueError"): [first]}
    assert (report.seeds, report.exit_code) == (first + 1, 1)
    assert "after 1 failing seed of 200" in report.stopped


def test_more_failing_seeds_are_found_if_asked_for() -> None:
    report = sim.check(programs.chooses_seven, seeds=100, stop_after=100, shrink_s=0)
    expected = [seed for seed in range(100) if sim.run(programs.chooses_seven, seed=seed).failed]
    assert report.found["exception", "ValueError"] == expected
    assert len(report.failures) == 1


def test_the_seeds_may_be_given() -> None:
    seeds: list[int] = []

    async def main(world: sim.World) -> None:
        seeds.append(world.seed)

    sim.check(main, seeds=(5, 3, 9), verify=False)
    assert seeds == [5, 3, 9]


def test_a_search_goes_on_from_the_seed_that_it_is_given_and_says_which_it_ran() -> None:
    seeds: list[int] = []

    async def main(world: sim.World) -> None:
        seeds.append(world.seed)

    report = sim.check(main, seeds=3, first=200, verify=False)
    assert seeds == [200, 201, 202]
    assert str(report).startswith("3 runs of seeds 200 to 202")
    assert str(sim.check(main, seeds=[7])).startswith("1 run of seed 7")
    assert "of seed" not in str(sim.check(main, seeds=[7, 3])).splitlines()[0]
    assert sim.check(main, seeds=[]).seeds == 0


def test_seeds_that_run_twice_are_counted() -> None:
    assert sim.check(programs.calm, seeds=60).verified == 2
    assert sim.check(programs.calm, seeds=60, verify=False).verified == 0


def test_a_finding_raises_with_the_report() -> None:
    report = sim.check(programs.chooses_seven, shrink_s=0)
    with pytest.raises(sim.SimulationFailed, match="seven") as caught:
        report.check()
    assert isinstance(caught.value.__cause__, ValueError)


def test_no_time_stops_it_after_one_seed() -> None:
    report = sim.check(programs.calm, budget_s=0.0)
    assert report.seeds == 1
    assert "the time was up" in report.stopped


def test_several_processes_give_the_same_report() -> None:
    alone = sim.check(programs.chooses_seven, seeds=60, stop_after=3, shrink_s=0)
    together = sim.check(programs.chooses_seven, seeds=60, stop_after=3, shrink_s=0, jobs=2)
    assert (together.found, together.seeds) == (alone.found, alone.seeds)
    assert together.failures[0].tape == alone.failures[0].tape


def digests(jobs: int) -> list[tuple[int, str]]:
    """Return the seeds and the digests of some runs."""
    found: list[Outcome] = list(
        outcomes(programs.writes_last_come_first, range(30), jobs, False, RunOptions())
    )
    return [(each.seed, each.digest) for each in found]


def test_outcomes_of_processes_come_in_the_order_of_seeds() -> None:
    assert digests(2) == digests(1)


def test_a_seed_that_ends_its_process_is_a_finding() -> None:
    parent = os.getpid()

    async def main(world: sim.World) -> None:
        if world.seed == 4 and os.getppid() == parent:
            os._exit(3)
        await asyncio.sleep(0)

    report = sim.check(main, seeds=8, jobs=2, shrink_s=0, allow=frozenset({"threads"}))
    assert list(report.found.values()) == [[4]]
    assert "the process died of it" in str(report)


def test_places_that_no_seed_reached_are_named() -> None:
    report = sim.check(reaches_one, seeds=20)
    assert "never" in report.never_reached
    assert "sometimes" not in report.never_reached
    assert 0 < report.reached["sometimes"] < 20


async def reaches_one(world: sim.World) -> None:
    """Reach a place with some seeds, and another with none."""
    if world.choose(2, "way"):
        sim.reached("sometimes")
    if world.choose(2, "way") > 1:
        sim.reached("never")


def test_an_order_by_addresses_is_not_deterministic() -> None:
    report = sim.check(programs.depends_on_addresses, seeds=3)
    assert report.exit_code == 3
    difference = report.differences[0]
    assert difference.first != difference.second
    assert "seed 0 is not deterministic" in str(report)
    assert "host main: epoll_wait" in difference.first


def test_one_seed_of_fifty_is_run_twice() -> None:
    runs = []

    async def main(world: sim.World) -> None:
        runs.append(world.seed)

    sim.check(main, seeds=51)
    assert sorted(runs) == sorted([*range(51), 0, 0, 50, 50])


def test_seeds_are_run_once_without_verify() -> None:
    assert not sim.check(programs.depends_on_addresses, seeds=3, verify=False).failed


@pytest.mark.parametrize("options", [{"jobs": 0}, {"stop_after": 0}])
def test_numbers_below_one_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="1 or more"):
        sim.check(programs.calm, **options)


def test_seeds_take_turns_among_strategies_as_runs_do() -> None:
    outcome = next(outcomes(programs.writes_last_come_first, [7], 1, False, RunOptions()))
    assert outcome.digest == sim.run(programs.writes_last_come_first, seed=7).digest


async def answers_badly(world: sim.World) -> None:
    """Let a handler fail with each seed, and the program itself with one of four."""

    def handle() -> None:
        raise KeyError("in the handler")

    asyncio.get_running_loop().call_later(0.001, handle)
    await asyncio.sleep(0.01)
    if world.choose(4, "way") == 3:
        raise ValueError("the bug")


def test_the_programs_own_error_comes_before_one_that_no_code_handles() -> None:
    seed = next(seed for seed in range(99) if len(sim.run(answers_badly, seed=seed).findings) == 2)
    assert [finding.kind for finding in sim.run(answers_badly, seed=seed).findings] == [
        "exception",
        "unhandled",
    ]


def test_an_error_that_no_code_handles_does_not_end_the_search() -> None:
    report = sim.check(answers_badly)
    assert report.seeds > 1
    assert str(report.first and report.first.finding).endswith("ValueError: the bug")
    assert "KeyError" in report.texts["unhandled", "KeyError"]
    assert report.found["unhandled", "KeyError"][0] == 0


def test_an_error_that_no_code_handles_is_a_remark_if_that_is_allowed() -> None:
    report = sim.check(answers_badly, allow={"unhandled"})
    assert list(report.found) == [("exception", "ValueError")]
    assert any("in the handler" in remark for remark in report.remarks)


def test_a_refusal_is_a_finding_even_if_errors_are_allowed() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(os.fork)
        await asyncio.sleep(1)

    assert [finding.kind for finding in sim.run(main, allow={"unhandled"}).findings] == ["limit"]
