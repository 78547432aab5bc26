"""`sim.test`, and what a program may ask in a world."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator

import pytest

from whorl import sim
from whorl.sim.running.testing import SETTINGS


@pytest.fixture(autouse=True)
def no_settings() -> Iterator[None]:
    """Let no option of pytest's decide about the tests inside these tests."""
    former = dict(vars(SETTINGS))
    SETTINGS.seeds = SETTINGS.jobs = SETTINGS.seconds = SETTINGS.replay = SETTINGS.command = None
    yield
    vars(SETTINGS).update(former)


def test_a_test_runs_with_all_its_seeds() -> None:
    seen = []

    @sim.test(seeds=5, verify=False)
    async def main(world: sim.World) -> None:
        seen.append(world.seed)

    main()
    assert seen == [0, 1, 2, 3, 4]


def test_a_test_needs_no_world() -> None:
    seen = []

    @sim.test(seeds=2, verify=False)
    async def main() -> None:
        await asyncio.sleep(1000)
        seen.append(sim.current())

    main()
    assert [type(each) for each in seen] == [sim.World, sim.World]


def test_a_failing_test_raises_with_its_report() -> None:
    @sim.test(seeds=50)
    async def main(world: sim.World) -> None:
        assert world.choose(4, "way") != 3

    with pytest.raises(sim.SimulationFailed, match="the program's choice 'way' was 3"):
        main()


def test_other_parameters_are_those_of_the_test() -> None:
    @sim.test(seeds=1)
    async def main(number: int, world: sim.World, *, text: str) -> None:
        assert (number, text, world.seed) == (3, "x", 0)

    assert list(inspect.signature(main).parameters) == ["number", "text"]
    assert not inspect.iscoroutinefunction(main)
    main(3, text="x")


@pytest.mark.parametrize("word", ["1", "0:calm::choice/way.0=3"])
def test_a_replay_runs_one_world(word: str) -> None:
    seen = []

    @sim.test(seeds=50)
    async def main(world: sim.World) -> None:
        seen.append(world.choose(4, "way"))

    SETTINGS.replay = word
    main()
    assert seen == [3] if ":" in word else len(seen) == 1


def test_settings_come_before_the_numbers_of_a_test() -> None:
    seen = []

    @sim.test(seeds=50, verify=False)
    async def main(world: sim.World) -> None:
        seen.append(world.seed)

    SETTINGS.seeds = [7]
    main()
    assert seen == [7]


def test_a_plain_function_is_refused() -> None:
    with pytest.raises(TypeError, match="a coroutine function was expected"):
        sim.test()(int)  # type: ignore[arg-type]


def test_a_decorator_without_parentheses_is_refused() -> None:
    async def main() -> None: ...

    with pytest.raises(TypeError, match="parentheses"):
        sim.test(main)  # type: ignore[arg-type]


def test_a_chance_happens_with_some_seeds_only() -> None:
    async def main() -> bool:
        return sim.chance("retry", 0.5)

    assert {sim.run(main, seed=seed).value for seed in range(30)} == {True, False}


def test_a_chance_is_on_the_tape_and_in_the_story() -> None:
    async def main() -> bool:
        return sim.chance("retry")

    result = sim.run(main, seed=sim.Tape(0, {("chance/retry", 0): 1}))
    assert result.value is True
    assert "chance 'retry' happened" in result.story[0]


def test_a_chance_outside_a_world_never_happens() -> None:
    assert sim.current() is None
    assert sim.chance("retry", 1.0) is False
    sim.reached("nowhere")
