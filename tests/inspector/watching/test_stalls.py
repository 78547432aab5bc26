"""A stall says why, by what its thread did most of the time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from whorl.inspector.watching.stalls import Caller, Frame, Stack, Stall

STALL = Stall(1, "loop", 2, 3, 1000, True, 0, 0, 0, 0, False, "call", None, ())


@pytest.mark.parametrize(
    ("running", "starved", "asleep", "reason"),
    [
        (600, 300, 100, "running"),
        (100, 300, 600, "asleep"),
        (446, 1180, 6, "starved"),
        (None, None, None, "unknown"),
        (500, None, None, "unknown"),
    ],
)
def test_reason_is_what_the_thread_did_longest(
    running: int | None, starved: int | None, asleep: int | None, reason: str
) -> None:
    stall = replace(STALL, running_ns=running, starved_ns=starved, asleep_ns=asleep)
    assert stall.reason == reason


def test_reason_is_the_lock_that_c_code_held_while_it_had_a_processor() -> None:
    stall = replace(STALL, running_ns=200, starved_ns=800, asleep_ns=0, gil_held=True)
    assert stall.reason == "gil held"


def test_place_of_many_callbacks_is_not_that_of_another_one_than_the_first() -> None:
    runner = Frame("/usr/lib/python3.13/asyncio/runners.py", 120, "Runner.run", "")
    program = Frame("/app/main.py", 9, "<module>", ""), runner
    stacks = (
        Stack(1, program, None, None, False),  # of a function of C's
        Stack(2, (*program, Frame("/app/main.py", 3, "work", "")), None, None, False),
    )
    callers = (Caller("HASH.update", 600), Caller("work", 300))
    stall = replace(STALL, call="HASH.update", stacks=stacks, callers=callers, callbacks=9)
    assert stall.place == ""
    assert stall.summary().startswith("9 callbacks of one iteration, most of all HASH.update, blocked")
    assert replace(stall, call="work").place == "work (main.py:3)"


def test_stall_of_callbacks_that_nobody_saw_says_how_many_they_were() -> None:
    stall = replace(STALL, call=None, stacks=(), callers=(), callbacks=1500, gil_held=True)
    assert stall.summary().startswith("1,500 callbacks of one iteration blocked the loop for ")
    assert "C code held the interpreter's lock" in stall.summary()
