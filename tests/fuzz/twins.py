"""Random programs on asyncio's own loop and on ours, side by side: they must see the same.

`python -m tests.fuzz.twins SEED STEPS` takes that many in all; with `shrink`, what fails is made short.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import math
import os
import sys
import warnings
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

import whorl
from tests.fuzz.world import ERRORS, World
from whorl.aio.transports import SocketTransport

STEPS = 40  # of one program
DEADLINE = 300  # seconds for all of them

EVENTS = ("made", "data", "eof", "pause", "resume", "lost")
small = st.integers(0, 5)
errors = st.sampled_from(sorted(ERRORS))
data = st.sampled_from(["@empty", "@short", "@kilobyte", "@mutable", "@view"])
parts = st.sampled_from(["@short", "@kilobyte", "@view"])  # asyncio waits for ever to send an empty one
sendable = st.sampled_from(["@empty", "@short", "@kilobyte", "@mutable"])
odd = st.sampled_from([None, "@text", 3, -1, 1.5, "@nan", math.inf, 2**70, "@object", []])

transport_calls = st.one_of(
    st.tuples(st.just("write"), st.tuples(data | odd)),
    st.tuples(st.just("write"), st.tuples(st.just("@huge"))),
    st.tuples(st.just("writelines"), st.tuples(st.lists(parts | odd, max_size=3) | odd)),
    st.tuples(
        st.sampled_from(
            [
                "write_eof",
                "can_write_eof",
                "close",
                "abort",
                "pause_reading",
                "resume_reading",
                "is_reading",
                "is_closing",
                "get_write_buffer_size",
            ]
        ),
        st.just(()),
    ),
    st.tuples(
        st.just("set_write_buffer_limits"),
        st.tuples(st.sampled_from([None, 0, 10, 100_000, -1, 2**70]), st.sampled_from([None, 0, 10, -1])),
    ),
)
odd_calls = st.sampled_from(
    [
        ("call_soon", ()),
        ("call_later", (None, "@print")),
        ("call_later", ("soon", "@print")),
        ("call_at", (None, "@print")),
        ("call_soon_threadsafe", ()),
        ("add_reader", (-1, "@print")),
        ("add_reader", ("@object", "@print")),
        ("add_writer", ("x", "@print")),
        ("remove_reader", (-1,)),
        ("remove_reader", (10_000,)),
        ("run_until_complete", (3,)),
        ("create_task", (3,)),
        ("set_exception_handler", (3,)),
        ("set_task_factory", (3,)),
        ("add_signal_handler", (9, "@print")),
        ("add_signal_handler", (-1, "@print")),
        ("add_signal_handler", ("x", "@print")),
        ("remove_signal_handler", (10,)),
        ("run_in_executor", (None, 3)),
        ("set_default_executor", (3,)),
        ("call_exception_handler", ({"message": "made up"},)),
    ]
)


def operations(effects: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """What a program may do, its callbacks having these effects."""
    delays = st.sampled_from([0, -1, -0.0, 1e-9, 1000, math.inf])
    return st.one_of(
        st.tuples(st.just("soon"), small, effects, st.booleans()),
        st.tuples(st.just("later"), delays, small, effects),
        st.tuples(st.just("cancel_handle"), small),
        st.tuples(st.just("future"), small, effects),
        st.tuples(st.just("set_result"), small, small),
        st.tuples(st.just("cancel"), small),
        st.tuples(st.just("task"), small, effects),
        st.tuples(
            st.just("connect"),
            st.sampled_from(["unix", "tcp"]),
            st.dictionaries(st.sampled_from(EVENTS), effects, max_size=2),
        ),
        *[transport_calls.flatmap(lambda call: st.tuples(st.just("transport"), small, *map(st.just, call)))]
        * 3,
        st.tuples(
            st.just("peer"), small, st.sampled_from(["send", "shut", "close", "reset", "drain"]), sendable
        ),
        st.tuples(st.just("peer"), small, st.sampled_from(["send", "drain"]), sendable),
        st.tuples(
            st.just("watch"),
            small,
            st.sampled_from(["add_reader", "add_writer", "remove_reader", "remove_writer"]),
            effects,
        ),
        st.tuples(
            st.just("sock"), small, st.just("sock_recv"), st.sampled_from([0, 1, 100, -1, "@text", 2**70])
        ),
        st.tuples(st.just("sock"), small, st.just("sock_sendall"), data),
        st.tuples(st.just("sock"), small, st.just("sock_recv_into"), st.just("@buffer") | odd),
        st.tuples(st.just("extra"), small, st.sampled_from(["socket", "peername", "sockname", "other"])),
        odd_calls.map(lambda call: ("odd_call", *call)),
        st.tuples(st.sampled_from(["stop", "is", "collect", "run_forever"])),
        st.tuples(st.just("debug"), st.booleans()),
    )


plain_effects = st.one_of(
    st.just(("nothing",)),
    st.tuples(st.just("return"), st.booleans()),
    st.tuples(st.just("raise"), errors),
)
effects = st.one_of(plain_effects, st.tuples(st.just("do"), operations(plain_effects)))
reactions = st.dictionaries(st.sampled_from(EVENTS), effects, max_size=3)


class Twins(RuleBasedStateMachine):
    """The same steps on both loops."""

    def __init__(self) -> None:
        super().__init__()
        self.before = descriptors()
        self.worlds = [World(asyncio.SelectorEventLoop), World(whorl.EventLoop)]

    @initialize(reactions=reactions, other_reactions=reactions)
    def begin(self, reactions: Any, other_reactions: Any) -> None:
        for world in self.worlds:
            world.do(("connect", "tcp", reactions))
            world.do(("connect", "unix", other_reactions))
        self.settle()

    @rule(operation=operations(effects))
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
        assert ours == expected, f"\nours:      {ours!r}\nasyncio's: {expected!r}"

    def teardown(self) -> None:
        while self.worlds:
            self.worlds.pop().end()
        for _ in range(3):  # What finalizers bring back goes the next time.
            gc.collect()
        assert descriptors() <= self.before, "descriptors were left open"
        assert not [item for item in gc.get_objects() if type(item) is SocketTransport], (
            "a transport was kept"
        )


def descriptors() -> int:
    """How many descriptors are open."""
    return len(os.listdir("/proc/self/fd"))


def main(seed: int, steps: int, shrink: bool) -> None:
    """Run programs; what fails is shown as it was, or in its shortest form, which takes long."""
    examples = max(1, steps // STEPS // 4)  # each is as long as many calls
    faulthandler.enable()
    faulthandler.dump_traceback_later(DEADLINE, exit=True)
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
    run_state_machine_as_test(seeded(seed)(Twins), settings=options)
    print(examples * STEPS)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), shrink="shrink" in sys.argv[3:])
