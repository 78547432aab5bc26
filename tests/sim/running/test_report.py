"""Reports of a failure."""

from __future__ import annotations

import asyncio
import logging
import random
import shlex
import sys
import uuid

import pytest

from tests.sim.running import programs
from whorl import sim
from whorl.sim.chance.faults import EDGE, GRID, RANDOM
from whorl.sim.running.explain import in_words, wording


def shown(main: object = programs.chooses_seven) -> str:
    """Return the report of a program that fails."""
    return str(sim.check(main, faults="swarm", shrink_s=10))  # type: ignore[arg-type]


def test_a_report_names_the_seed_the_error_and_its_time() -> None:
    text = shown()
    first = next(
        seed for seed in range(99) if sim.run(programs.chooses_seven, seed=seed, faults="swarm").failed
    )
    assert f"Seed {first}: exception at " in text
    assert "ms, host main: ValueError: seven" in text


def test_a_report_shows_where_the_program_failed() -> None:
    text = shown()
    assert 'in chooses_seven: raise ValueError("seven")' in text
    assert "whorl/sim/running" not in text.partition("Replay")[0].replace("tests/sim/running", "")


def test_a_report_says_what_differs_from_a_calm_run() -> None:
    lines = shown().splitlines()
    after = lines[lines.index("What differs from a calm run:") + 1]
    assert after.endswith("ms, the program's choice 'number' was 7")


def test_a_report_ends_with_the_story() -> None:
    assert "about to choose" in shown().partition("The end of its story:")[2]


def test_the_command_of_a_report_replays_the_failure() -> None:
    command = shlex.split(sim.check(programs.chooses_seven, faults="swarm").replay_command)
    assert command[:3] == ["whorl", "sim", "replay"]
    assert command[4].endswith("programs.py::chooses_seven")
    assert "seven" in str(sim.replay(programs.chooses_seven, command[3]).findings[0])


def test_a_function_inside_another_is_replayed_by_a_call() -> None:
    async def main(world: sim.World) -> None:
        assert not world.choose(2, "way")

    report = sim.check(main)
    call = report.replay_command
    assert call.startswith("sim.replay(main, '")
    assert eval(call, {"sim": sim, "main": main}).failed


def test_a_tape_that_is_too_long_is_replaced_by_the_seed() -> None:
    async def main(world: sim.World) -> None:
        for _ in range(2000):
            world.choose(9, "a long name for a choice")
        raise ValueError

    report = sim.check(main, seeds=[3], shrink_s=0)
    assert report.replay_command == "sim.replay(main, '3', faults='calm')"


WORDS = [
    ("client/cpu", 2, GRID, "host client: its turn took 1 ms longer"),
    ("client/cpu", 3, GRID, "host client: its turn took 2 ms longer"),
    ("client/cpu", 4, RANDOM, "host client: its turn took 0.5 ms longer"),
    ("client/cpu", 3, EDGE, "host client: its turn took until a deadline or arrival"),
    ("client/executor", 2, 0, "host client: a job of its executor waited 0.25 ms longer"),
    ("a>b/loss", 1, 0, "a packet from a to b was lost"),
    ("main/ties", 1, 0, "host main: a timer came before others of its time"),
    ("main/ties", 2, 0, "host main: a timer came after others of its time"),
    ("main/dns", 2, 0, "host main: the name server was silent"),
    ("swarm/loss", 2, 0, "in the whole run, faults of the kind 'loss' happen (rate 2 of 3)"),
    ("chance/retry", 1, 0, "the program's chance 'retry' happened"),
    ("main/new", 5, 0, "decision 'main/new' was 5"),
]


def test_turn_that_ends_at_an_edge_says_how_long_it_took() -> None:
    text = wording("client/cpu", 4, 3_999_999, EDGE)
    assert text == "host client: its turn took 3.999999 ms longer, until right before a deadline or arrival"


@pytest.mark.parametrize(("name", "value", "model", "text"), WORDS, ids=lambda each: str(each)[:20])
def test_decisions_are_put_in_words(name: str, value: int, model: int, text: str) -> None:
    assert wording(name, value, None, model) == text


def test_words_come_in_the_order_of_time() -> None:
    decisions = {("b/cpu", 0): 8, ("cpu/model", 0): RANDOM, ("a/again", 9): 1}
    moments = {("b/cpu", 0): (12_000_000, 16), ("cpu/model", 0): (0, 4), ("a/again", 9): (2_500_000, 2)}
    assert in_words(decisions, moments) == [
        "in the whole run, turns take parts of milliseconds",
        "at 2.500 ms, host a: a call found nothing (EAGAIN)",
        "at 12.000 ms, host b: its turn took 1 ms longer",
    ]


def test_every_decision_of_a_swarm_has_words() -> None:
    kinds = set()
    for seed in range(20):
        result = sim.run(programs.writes_last_come_first, seed=seed, faults="swarm")
        kinds |= {(name, value) for (name, _), value in result.tape.decisions.items()}
    assert kinds
    assert [name for name, value in kinds if wording(name, value).startswith("decision")] == []


def test_random_numbers_are_what_differs_where_no_decision_does() -> None:
    report = sim.check(programs.fails_by_chance)
    seed = report.failures[0].seed
    text = str(report)
    assert "in nothing" not in text
    assert f"only in the random numbers of seed {seed}: 2 words of 32 bits from `random`." in text
    assert "world.choose(n, name)" in text


def test_random_numbers_beside_decisions_are_told() -> None:
    async def main(world: sim.World) -> None:
        uuid.uuid4()
        assert random.getrandbits(32) < 0 or world.choose(2, "way") == 0

    text = str(sim.check(main))
    assert "the program's choice 'way' was 1" in text
    assert "1 word of 32 bits from `random` and 1 answer of os.urandom, uuid and others." in text


def test_random_numbers_of_a_seed_of_the_programs_own_differ_in_nothing() -> None:
    async def main() -> None:
        random.seed(5)
        random.random()
        raise ValueError

    assert "It differs in nothing from a calm run." in str(sim.check(main))


def test_words_of_many_random_numbers_are_counted() -> None:
    async def main() -> None:
        for _ in range(5000):
            random.getrandbits(32)
        raise ValueError

    assert sim.run(main, seed=3).random_words == 5000


def test_log_of_a_failing_run_is_told_and_no_other_is_written(capfd: pytest.CaptureFixture[str]) -> None:
    async def main(world: sim.World) -> None:
        logging.getLogger("tests.sim").addHandler(handler)
        logging.getLogger("tests.sim").warning("seed %d", world.seed)
        assert world.seed < 3

    handler = logging.StreamHandler(sys.stderr)
    try:
        report = sim.check(main)
        assert "seed" not in capfd.readouterr().err
        assert str(report).partition("The end of its log:")[2].startswith("\n         0.000 ms  seed 3\n")
        assert sim.run(main).log == []
    finally:
        logging.getLogger("tests.sim").removeHandler(handler)
    assert capfd.readouterr().err == "seed 0\n"


def test_limit_that_each_run_reaches_is_told_as_that() -> None:
    async def main() -> None:
        await asyncio.sleep(100)

    report = sim.check(main, limit_s=50)
    text = str(report)
    assert "outoftime at 50000.000 ms: the run takes more than 50 virtual seconds (limit_s)" in text
    assert "Shrunk" not in text
    assert "A calm run does not end in time, either." in text
    assert "limit_s=50" in report.replay_command
