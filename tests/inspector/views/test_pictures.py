"""Pictures of recordings that are made by hand."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.inspector.views.made_recordings import MS, Made, S, busy_server
from whorl.core.recording import layout
from whorl.inspector.asking.finding import Found
from whorl.inspector.recordings.recording import Recording
from whorl.inspector.views.pictures import ProcessPicture, Reading, picture

NOW = 1000 * S


def reading(made: Made, state: str = "running", now_ns: int = NOW) -> Reading:
    found = Found("/recorded", made.pid, 0, state, Recording(bytes(made.memory)))
    found_loops = {loop.number: loop for loop in found.recording.loops()}
    return Reading(found, found_loops, now_ns)


def alone(made: Made, **options: Any) -> ProcessPicture:
    return picture(reading(made, **options), None)


def test_rates_are_those_between_two_readings() -> None:
    made = Made()
    made.loop(run_began_ns=1, turns=100, callbacks=1000, bytes_in=10_000, idle_ns=500 * S)
    before = reading(made)
    made.loop(turns=150, callbacks=3000, bytes_in=30_000, bytes_out=4, idle_ns=501 * S + 500 * MS)
    loop = picture(reading(made, now_ns=NOW + 2 * S), before).loops[0]
    assert (loop.over, loop.turns, loop.callbacks, loop.bytes_in, loop.bytes_out) == (2, 25, 1000, 10_000, 2)
    assert loop.utilization == pytest.approx(0.25)


def test_rates_of_the_first_reading_are_those_since_the_beginning() -> None:
    made = Made()
    made.loop(ran_ns=10 * S, idle_ns=9 * S, turns=100)
    loop = alone(made).loops[0]
    assert (loop.over, loop.turns, loop.utilization) == (10, 10, pytest.approx(0.1))


def test_sleep_that_goes_on_is_idle_time() -> None:
    made = Made()
    made.loop(run_began_ns=NOW - 10 * S, sleep_began_ns=NOW - 8 * S)
    loop = alone(made).loops[0]
    assert (loop.utilization, loop.state) == (pytest.approx(0.2), "asleep")


def test_times_are_those_between_two_readings_and_ever() -> None:
    made = Made()
    made.loop(run_began_ns=1)
    made.times(0, (400, 1))
    before = reading(made)
    made.times(0, (100, 99), (400, 1))
    loop = picture(reading(made, now_ns=NOW + S), before).loops[0]
    assert loop.away.recent.count == 99
    assert (loop.away.recent.max or 0) < 1e-6
    assert (loop.away.ever.max or 0) > 0.1
    assert loop.callback.ever == loop.callback.recent
    assert loop.callback.ever.p99 is None


def test_numbers_are_differences_of_counters() -> None:
    loop = alone(busy_server(Made(), NOW)).loops[0]
    assert (loop.tasks, loop.connections, loop.jobs_waiting, loop.jobs_running) == (1004, 40, 2, 2)


def test_call_that_takes_long_is_stuck_and_has_its_task() -> None:
    loop = alone(busy_server(Made(), NOW)).loops[0]
    assert loop.state == "stuck"
    assert loop.call is not None
    assert (loop.call.name, loop.call.task, loop.call.seconds) == ("handle_order", "order 4711", 3.2)


@pytest.mark.parametrize(
    ("state", "expected"), [("stopped", "stopped"), ("died", "died"), ("finished", "died")]
)
def test_loop_of_a_process_that_does_not_run_is_not_stuck(state: str, expected: str) -> None:
    loop = alone(busy_server(Made(), NOW), state=state).loops[0]
    assert loop.state == expected
    assert loop.call is not None
    assert not loop.call.stuck


def test_short_call_is_not_stuck() -> None:
    made = Made()
    made.loop(run_began_ns=1, call_began_ns=NOW - 99 * MS, call_name=made.name("quick"))
    loop = alone(made).loops[0]
    assert (loop.state, loop.call and loop.call.stuck) == ("running", False)


def test_closed_loop_is_told() -> None:
    made = Made()
    made.loop(state=2)
    assert alone(made).loops[0].state == "closed"


def test_longest_calls_and_busiest_coroutines_are_those_of_the_last_seconds() -> None:
    made = Made()
    quick, slow, handle = made.name("quick"), made.name("slow"), made.name("TCPTransport")
    made.event(NOW - 60 * S, 900 * MS, layout.STEP, slow << 32 | 1)
    made.event(NOW - 5 * S, 0, layout.TASK_MADE, 2)
    made.event(NOW - 5 * S, 4711 * layout.TOOK_UNIT_NS, layout.TASK_MADE, 3)
    for number in range(3):
        made.event(NOW - 4 * S + number, 10 * MS, layout.STEP, quick << 32 | 3)
    made.event(NOW - 3 * S, 20 * MS, layout.STEP, slow << 32 | 2)
    made.event(NOW - 2 * S, 15 * MS, layout.CALLBACK, handle << 32 | 12, layout.IO)
    found = alone(made)
    assert [(long.name, long.task, long.seconds) for long in found.longest[:3]] == [
        ("slow", None, 0.02),
        ("TCPTransport of fd 12", None, 0.015),
        ("quick", "Task-4711", 0.01),
    ]
    assert [(busy.name, busy.steps) for busy in found.busiest] == [("quick", 3), ("slow", 1)]
    assert found.busiest[0].seconds == pytest.approx(0.03)
    assert found.window == 10


def test_stall_has_one_line() -> None:
    stalls = alone(busy_server(Made(), NOW)).stalls
    assert [stall.summary for stall in stalls] == [
        "order 4711 (handle_order): the thread was blocked in openat of /srv/queue",
        "order 4711 (handle_order): the thread was blocked in clock_nanosleep",
    ]
    assert [stall.length for stall in stalls] == [3.2, 0.25]


def test_stall_that_goes_on_grows() -> None:
    found = alone(busy_server(Made(), NOW), now_ns=NOW + S).stalls[0]
    assert (found.ended, found.length) == (False, 4.2)


@pytest.mark.parametrize("stall", [{}, {"text": 7, "began_ns": "x", "task": [], "reason": {}, "call": None}])
def test_stall_of_any_form_is_shown(stall: dict[str, Any]) -> None:
    made = Made()
    made.stall(**stall)
    assert alone(made).stalls[0].summary.startswith("a callback")


def test_name_in_a_stall_ends_no_line() -> None:
    made = Made()
    made.stall(text="a\u2028b blocked the loop\n  a\x85b\x1c")
    assert alone(made).stalls[0].text == "a\\u2028b blocked the loop\n  a\\x85b\\x1c"


def test_control_characters_are_escaped_everywhere() -> None:
    evil = "\x1b]0;x\x07<script>[red]\u202e"
    made = busy_server(Made(command=b"python\0" + evil.encode()), NOW)
    made.loop(call_name=made.name(evil))
    made.event(NOW, 0, layout.TASK_MADE, made.name(evil) << 32 | 17)
    made.event(NOW, 5 * S, layout.STEP, made.name(evil) << 32 | 17)
    made.stall(call=evil, task=evil, reason="asleep", syscall=evil, file=evil, text=f"{evil}\n{evil}")
    assert not any(char in text for text in texts_of(alone(made)) for char in "\x1b\x07\u202e")


def texts_of(thing: Any) -> list[str]:
    """Return all texts in a picture."""
    if isinstance(thing, str):
        return [thing]
    if isinstance(thing, list | tuple):
        return [text for part in thing for text in texts_of(part)]
    if hasattr(thing, "__dict__"):
        return texts_of(list(vars(thing).values()))
    return []


def test_reading_of_a_dead_process_is_that_of_its_last_sign_of_life() -> None:
    made = Made()
    made.loop(updated_ns=5 * S)
    made.word(layout.ALIVE_AT, 7 * S)
    found = Found("/recorded", 7, 0, "died", Recording(bytes(made.memory)))
    assert Reading.of(found).now_ns == 7 * S
    assert Reading.of(found._replace(state="running")).now_ns <= time.monotonic_ns()


def test_handle_without_a_descriptor_is_named_without_one() -> None:
    made = Made()
    for number in (7, 0xFFFFFFFF):
        made.event(NOW - S, S // 2, layout.CALLBACK, made.name("Transport") << 32 | number, layout.IO)
    assert {long.name for long in alone(made).longest} == {"Transport of fd 7", "Transport"}
