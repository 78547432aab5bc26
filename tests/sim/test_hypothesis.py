"""Worlds as data of Hypothesis."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("hypothesis")

from hypothesis import given, settings
from hypothesis import strategies as st

from whorl import sim
from whorl.sim.hypothesis import DrawnWorld, worlds

FEW = settings(max_examples=60, database=None, derandomize=True, deadline=None)


def test_worlds_and_data_both_become_small() -> None:
    @FEW
    @given(worlds(faults="light"), st.lists(st.integers()))
    def fails(world: DrawnWorld, numbers: list[int]) -> None:
        world.run(main, numbers)

    async def main(world: sim.World, numbers: list[int]) -> None:
        if world.choose(3, "way") and len(numbers) > 2:
            raise ValueError(numbers)

    with pytest.raises(sim.SimulationFailed) as caught:
        fails()
    text = str(caught.value)
    assert "ValueError: [0, 0, 0]" in text
    assert "the program's choice 'way' was 1" in text
    assert "to 1 in" in text


def test_a_program_without_a_bug_passes() -> None:
    seen: list[Any] = []

    @FEW
    @given(worlds(), st.integers())
    def passes(world: DrawnWorld, number: int) -> None:
        seen.append((world.run(main, number), number))

    async def main(world: sim.World, number: int) -> int:
        return number

    passes()
    assert seen
    assert all(value == number for value, number in seen)


def test_a_world_shows_its_seed() -> None:
    assert repr(DrawnWorld(7, "swarm")) == "DrawnWorld(seed=7, faults='swarm')"
