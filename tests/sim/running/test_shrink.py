"""Shrinking: how small a failing run becomes."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from tests.sim.running import programs
from whorl import sim
from whorl.sim.running import shrink as passes


def failure_of(main: object, **options: object) -> sim.Failure:
    """Return the failure of the first seed that fails."""
    for seed in itertools.count():
        result = sim.run(main, seed=seed, **options)  # type: ignore[arg-type]
        if result.failed:
            return sim.Failure.of(result, options)
    raise AssertionError


@pytest.mark.parametrize("faults", ["calm", "swarm"])
def test_a_failure_shrinks_to_the_decision_it_needs(faults: str) -> None:
    small = sim.shrink(programs.chooses_seven, failure_of(programs.chooses_seven, faults=faults), budget_s=20)
    assert small.tape.decisions == {("choice/number", 0): 7}


def test_a_failure_of_an_order_shrinks_to_one_pick() -> None:
    failure = failure_of(programs.writes_last_come_first, faults="swarm")
    small = sim.shrink(programs.writes_last_come_first, failure, budget_s=20)
    assert list(small.tape.decisions.values()) == [1]
    assert sim.replay(programs.writes_last_come_first, small.tape).findings[0].key == failure.finding.key


def test_a_failure_of_another_kind_does_not_count() -> None:
    async def main(world: sim.World) -> None:
        a, b = world.choose(3, "a"), world.choose(3, "b")
        await asyncio.sleep(0.001)
        if a and b:
            raise ValueError("both")
        if a or b:
            raise KeyError("one")

    result = sim.run(main, seed=sim.Tape(0, {("choice/a", 0): 2, ("choice/b", 0): 2}))
    small = sim.shrink(main, sim.Failure.of(result, {}), budget_s=20)
    assert small.finding.key == ("exception", "ValueError")
    assert small.tape.decisions == {("choice/a", 0): 1, ("choice/b", 0): 1}


def test_values_become_as_low_as_they_can() -> None:
    async def main(world: sim.World) -> None:
        assert world.choose(100, "a") < 13

    result = sim.run(main, seed=sim.Tape(0, {("choice/a", 0): 90}))
    small = sim.shrink(main, sim.Failure.of(result, {}), budget_s=20)
    assert small.tape.decisions == {("choice/a", 0): 13}


def test_two_decisions_become_one_that_does_the_work_of_both() -> None:
    async def main(world: sim.World) -> None:
        await asyncio.sleep(0)
        assert world.choose(20, "a") + world.choose(20, "b") < 9

    failure = sim.Failure.of(sim.run(main, seed=sim.Tape(0, {("choice/a", 0): 4, ("choice/b", 0): 5})), {})
    search = passes._Search(main, failure, budget_s=20, runs=1000)
    assert passes._reduced(search, failure, search.ends).tape.decisions == {("choice/a", 0): 9}


def test_no_more_runs_are_made_than_allowed() -> None:
    small = sim.shrink(programs.chooses_seven, failure_of(programs.chooses_seven), runs=3)
    assert small.runs == 3


def test_a_failure_that_is_calm_already_stays() -> None:
    async def main() -> None:
        raise ValueError

    result = sim.run(main, seed=sim.Tape(0, {}))
    assert sim.shrink(main, sim.Failure.of(result, {})).tape.decisions == {}


TAKEN = {("a/cpu", 0): 4, ("a/cpu", 1): 1, ("b/cpu", 0): 1, ("b/dns", 3): 2}


def test_groups_are_those_of_a_kind_an_owner_and_a_stream() -> None:
    left = [set(smaller) for smaller in passes.drop_groups(TAKEN)]
    assert {("b/dns", 3)} in left
    assert {("a/cpu", 0), ("a/cpu", 1)} in left
    assert {("a/cpu", 0), ("a/cpu", 1), ("b/dns", 3)} in left


@pytest.mark.parametrize("each", passes.PASSES, ids=lambda each: each.__name__)
def test_every_pass_proposes_less(each: passes.Pass) -> None:
    for smaller in each(TAKEN):
        assert sim.Tape(0, smaller).size < sim.Tape(0, TAKEN).size


def test_random_numbers_of_a_program_stay_those_of_the_failing_seed() -> None:
    failure = failure_of(programs.fails_by_chance, faults="swarm")
    small = sim.shrink(programs.fails_by_chance, failure, budget_s=20)
    assert (small.tape.seed, small.tape.decisions) == (failure.seed, {})
    assert sim.replay(programs.fails_by_chance, small.tape).findings[0].key == failure.finding.key


def test_run_without_any_decision_is_tried_first() -> None:
    async def main() -> None:
        raise ValueError

    small = sim.shrink(main, sim.Failure.of(sim.run(main, seed=sim.Tape(0, {("cpu/model", 0): 1})), {}))
    assert (small.runs, small.tape.decisions) == (1, {})


def test_variant_draws_other_decisions_and_the_same_random_numbers() -> None:
    async def main(world: sim.World) -> tuple[int, float]:
        return world.choose(1 << 30, "number"), random.random()

    (number, drawn), (other, same) = (sim.run(main, seed=3, variant=variant).check() for variant in (0, 1))
    assert number != other
    assert drawn == same
