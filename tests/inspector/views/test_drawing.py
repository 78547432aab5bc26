"""Pictures drawn as lines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.inspector.views.made_recordings import Made, S, busy_server
from tests.inspector.views.test_pictures import NOW, alone
from whorl.formats.cells import columns_of
from whorl.inspector.views import drawing


def drawn(lines: list[drawing.Line]) -> str:
    return "\n".join(line.text for line in lines)


def two_loops() -> Made:
    made = busy_server(Made(command=b"/usr/bin/python3.13\0-X\0dev\0-m\0uvicorn\0shop:app"), NOW)
    made.loop(1, run_began_ns=NOW - 10 * S, sleep_began_ns=NOW - 9 * S)
    return made


def test_overview_has_a_line_for_each_loop_and_one_for_a_stuck_one() -> None:
    text = drawn(drawing.overview([alone(two_loops())], 80))
    lines = text.splitlines()
    assert lines[0].split() == ["PID", "PROGRAM", "LOOP", "BUSY", "CALLS/S", "IN/S", "OUT/S", "AWAY"]
    assert lines[1].split()[:2] == ["7", "uvicorn"]
    assert lines[2].strip() == "stuck in handle_order (order 4711) for 3.2 s"
    assert lines[3].split()[:2] == ["2", "█···········"] or "10%" in lines[3]


def test_overview_tells_of_the_dead() -> None:
    made = Made()
    made.loop(updated_ns=NOW)
    text = drawn(drawing.overview([alone(made, state="died")], 80))
    assert "app.py" in text
    assert "died" in text


def test_overview_of_nothing_says_how_to_begin() -> None:
    assert "WHORL_INSPECT=1" in drawn(drawing.overview([], 80))


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("state", ["running", "stopped", "died"])
def test_no_line_is_wider_than_the_terminal(width: int, state: str) -> None:
    made = two_loops()
    long = made.name("a_function_with_a_very_long_name" * 7)
    made.loop(call_name=long, turns=10**15, callbacks=10**15, bytes_in=10**15, bytes_out=10**15)
    made.stall(call="x" * 200, task="y" * 200, reason="asleep", syscall="read", file="z" * 200)
    process = alone(made, state=state)
    lines = drawing.details(process, width, height=24) + drawing.overview([process], width)
    assert max(columns_of(line.text) for line in lines) <= width


def test_details_fit_a_terminal_of_24_rows() -> None:
    lines = drawing.details(alone(two_loops()), 80, height=23)
    assert len(lines) <= 23
    text = drawn(lines)
    for part in (
        "stuck in handle_order (order 4711) for 3.2 s",
        "last stalls",
        "longest calls",
        "tasks 1,004",
    ):
        assert part in text


def test_details_are_those_of_the_chosen_loop() -> None:
    process = alone(two_loops())
    assert drawing.chosen_loop(process, 2) is process.loops[1]
    assert drawing.chosen_loop(process, 0) is process.loops[0]  # it is stuck
    assert "loop 2  asleep" in drawn(drawing.details(process, 80, chosen=2))


def test_details_count_handles_only_where_a_program_has_some() -> None:
    made = busy_server(Made(), NOW)
    assert "handles 43" in drawn(drawing.details(alone(made), 120))
    made.loop(handles=0)
    assert "handles" not in drawn(drawing.details(alone(made), 120))


def test_times_of_a_dead_process_are_those_of_all_its_life() -> None:
    text = drawn(drawing.details(alone(two_loops(), state="died"), 80))
    assert "was stuck in handle_order (order 4711) for 3.2 s when it died" in text
    assert "since its beginning" not in text


def test_stalls_are_shown_with_their_stacks() -> None:
    text = drawn(drawing.stalls(alone(two_loops()), 80))
    assert 'File "x.py", line 9' in text
    assert text.index("openat") < text.index("clock_nanosleep")
    assert "No stalls." in drawn(drawing.stalls(alone(Made()), 80))


def test_bar_is_filled_to_its_share() -> None:
    assert [piece.text for piece in drawing.bar(0.5, 4)] == ["██", "··"]
    assert [piece.text for piece in drawing.bar(2, 4)] == ["████", ""]
    assert drawing.sparks([0, 0.5, 1, 7], 3).text == "▅██"


def test_details_and_stalls_say_that_callbacks_waited_for_a_processor() -> None:
    process = replace(alone(two_loops()), starved=40)
    words = "40 callbacks took long only because other programs had the processor"
    assert words in drawn(drawing.details(process, 80, height=23))
    assert words in drawn(drawing.stalls(process, 80))


def test_overview_shows_the_last_of_the_ended_and_how_many_more_there_are() -> None:
    made = Made()
    made.loop(updated_ns=NOW)
    dead = [replace(alone(made, state="died"), pid=100 + number) for number in range(9)]
    living = alone(two_loops())
    lines = drawing.overview([living, *dead], 80, drawing.MOST_ENDED)
    assert [line.key[0] for line in lines if line.key is not None and line.key[0] >= 100] == [100, 101, 102]
    assert lines[-1].text.strip() == "and 6 more that have ended: d or --ended shows them"
    everyone = drawn(drawing.overview([living, *dead], 80))
    assert "108" in everyone
    assert "more that" not in everyone
