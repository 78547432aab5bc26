"""Random programs on asyncio's own loop and on Whorl's, side by side: they must see the same.

`python -m tests.fuzz.twins SEED STEPS - [SUBJECT...]` takes that many in all. With `shrink` in place of the
hyphen, what fails is made short.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import logging
import os
import random
import sys
import types
import warnings
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

import whorl
from tests.fuzz.subjects import connections, datagrams, files, programs, servers, streams, timers, tls
from tests.fuzz.world import ERRORS, World
from whorl.aio.transports.public import SocketTransport

STEPS = 40  # of one program
DEADLINE = 140  # seconds for all of them
SHRINKING = 1800  # seconds, when the shortest one is looked for

SUBJECTS = (connections, datagrams, files, programs, servers, streams, timers, tls)
plain_effects = st.one_of(
    st.just(("nothing",)),
    st.tuples(st.just("return"), st.booleans()),
    st.tuples(st.just("raise"), st.sampled_from(sorted(ERRORS))),
    st.tuples(st.just("set"), st.integers(1, 5)),
)
reactions = st.dictionaries(st.sampled_from(connections.EVENTS), plain_effects, max_size=3)


class Everything(
    datagrams.Datagrams,
    files.Files,
    programs.Programs,
    servers.Servers,
    streams.Streams,
    tls.Tls,
    connections.Connections,
):
    """A world with everything in it."""


class EverythingInTime(timers.Timers, Everything):
    """The same with a clock of its own."""


class Twins(RuleBasedStateMachine):
    """The same steps on both loops."""

    world: type[World] = Everything
    failed = False

    def __init__(self) -> None:
        super().__init__()
        self.before = descriptors()
        self.worlds = [self.world(asyncio.SelectorEventLoop), self.world(whorl.EventLoop)]

    @initialize(reactions=reactions, other_reactions=reactions)
    def begin(self, reactions: Any, other_reactions: Any) -> None:
        for world in self.worlds:
            world.do(("connect", "tcp", reactions))
            world.do(("connect", "unix", other_reactions))
        self.settle()

    def step(self, operation: Any) -> None:
        self.compare([world.do(operation) for world in self.worlds])
        self.settle()

    def settle(self) -> None:
        for world in self.worlds:
            world.do_settle()
        self.compare([world.state() for world in self.worlds])

    @staticmethod
    def compare(answers: list[Any]) -> None:
        expected, ours = answers
        if isinstance(expected, dict):
            wrong = [key for key in expected if expected[key] != ours[key]]
            expected, ours = ([answer[key] for key in wrong] for answer in answers)
        Twins.failed = Twins.failed or ours != expected
        assert ours == expected, f"\nours:      {ours!r}\nasyncio's: {expected!r}"

    def teardown(self) -> None:
        while self.worlds:
            self.worlds.pop().end()
        if Twins.failed:
            return  # the traceback keeps what there was
        for _ in range(3):  # Objects that finalizers revive go the next time.
            gc.collect()
        left = {fd: file for fd, file in descriptors().items() if self.before.get(fd) != file}
        assert not left, f"descriptors were left open: {left}"
        assert not [item for item in gc.get_objects() if type(item) is SocketTransport], (
            "a transport was kept"
        )


def machine(subjects: Sequence[types.ModuleType]) -> type[Twins]:
    """Return the class that makes random programs about some subjects."""

    def operations(effects: Any) -> Any:
        return st.one_of(*[subject.operations(effects) for subject in subjects])

    effects = st.one_of(plain_effects, st.tuples(st.just("do"), operations(plain_effects)))
    step = rule(operation=operations(effects))(Twins.step)
    world = EverythingInTime if timers in subjects else Everything
    return type("Twins", (Twins,), {"step": step, "world": world})


def chosen(seed: int, names: Sequence[str]) -> list[types.ModuleType]:
    """Return the subjects with these names; without any, up to three that the seed chooses."""
    if names:
        return [subject for subject in SUBJECTS if subject.__name__.rpartition(".")[2] in names]
    rng = random.Random(seed)
    return rng.sample(SUBJECTS, rng.choice((1, 1, 2, 3)))


def descriptors() -> dict[int, str]:
    """Return the open descriptors, with the system's names of their targets."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the folder itself
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found


def main(seed: int, steps: int, names: Sequence[str], shrink: bool) -> None:
    """Run programs; what fails is shown as it was, or in its shortest form, which takes long."""
    examples = max(1, steps // STEPS // 4)  # each is as long as many calls
    faulthandler.enable()
    faulthandler.dump_traceback_later(SHRINKING if shrink else DEADLINE, exit=True)
    logging.disable()
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda unraisable: None
    options = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
    )
    run_state_machine_as_test(seeded(seed)(machine(chosen(seed, names))), settings=options)
    print(examples * STEPS)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[4:], shrink="shrink" in sys.argv[3:])
