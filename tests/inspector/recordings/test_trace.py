"""The trace of a recording: rules of its format, and what it tells."""

from __future__ import annotations

import gzip
import io
import json
from collections import defaultdict
from typing import Any

import pytest

from tests.inspector.recordings.made_recordings import MS, UGLY, Made, served
from whorl.core.recording import layout
from whorl.inspector.recordings import trace
from whorl.inspector.recordings.recording import Recording
from whorl.inspector.recordings.timeline import program, words_of_program

Row = dict[str, Any]


def written(made: Made | Recording, **options: Any) -> bytes:
    """Return the bytes of a trace."""
    file = io.BytesIO()
    recording = made.recording() if isinstance(made, Made) else made
    trace.write(recording, file, **({"compressed": False} | options))
    return file.getvalue()


def rows(made: Made, **options: Any) -> list[Row]:
    """Return the events of a trace that obeys the rules of the format."""
    document = json.loads(written(made, **options))
    assert document["displayTimeUnit"] == "ns"
    found: list[Row] = document["traceEvents"]
    for row in found:
        check_rules(row)
    check_nesting(found)
    check_halves(found)
    return found


def check_rules(row: Row) -> None:
    """Assert what the format asks of each kind of event."""
    assert isinstance(row["name"], str)
    assert isinstance(row["pid"], int)
    assert isinstance(row["tid"], int)
    if row["ph"] == "M":
        return
    assert row["ts"] >= 0
    needed = {"X": "dur", "b": "id", "e": "id", "s": "id", "f": "id", "C": "args", "i": "s"}
    assert needed[row["ph"]] in row
    assert row.get("dur", 0) >= 0
    if row["ph"] == "C":
        assert all(type(value) is float for value in row["args"].values())


def check_nesting(found: list[Row]) -> None:
    """Assert that of two spans of a thread one contains the other, or they do not overlap."""
    open_spans: dict[int, list[float]] = defaultdict(list)
    for row in found:
        if row["ph"] == "X" and row["tid"] < trace.STALLS:
            around = open_spans[row["tid"]]
            end = row["ts"] + row["dur"]  # as readers add: not rounded
            while around and around[-1] <= row["ts"]:
                around.pop()
            assert not around or end <= around[-1], row
            around.append(end)


def check_halves(found: list[Row]) -> None:
    """Assert that each asynchronous span has its beginning and its end, and each arrow both ends."""
    open_spans: dict[str, Row] = {}
    for row in found:
        if row["ph"] in "bs":
            assert open_spans.setdefault(f"{row['cat']} {row['id']}", row) is row
        elif row["ph"] in "ef":
            begin = open_spans.pop(f"{row['cat']} {row['id']}")
            assert begin["name"] == row["name"]
            assert begin["ts"] <= row["ts"]
    assert open_spans == {}


def spans(found: list[Row], name: str) -> list[tuple[float, float]]:
    """Return when spans of this name begin, and how long they are, in microseconds.

    Those of a loop are written a nanosecond shorter.
    """
    found = [row for row in found if row["ph"] == "X" and row["name"] == name]
    ends = [0.001 if row["tid"] < trace.STALLS and "args" not in row else 0 for row in found]
    return [(row["ts"], round(row["dur"] + end, 3)) for row, end in zip(found, ends, strict=True)]


def test_trace_of_a_server_obeys_the_rules_of_the_format() -> None:
    found = rows(served())
    kinds = defaultdict(int)
    for row in found:
        kinds[row["ph"]] += 1
    assert kinds == {"M": 6, "X": 162, "b": 40, "e": 40, "i": 1, "s": 40, "f": 40, "C": 119}


def test_process_is_the_program_and_threads_are_loops() -> None:
    made = Made(command=b"/usr/bin/python3\0-X\0dev\0-m\0shop.server").loop(1).loop(2)
    names = [row["args"]["name"] for row in rows(made) if row["name"] in ("process_name", "thread_name")]
    assert names == ["shop.server", "loop 1", "loop 2"]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python service.py --port 80", "service.py"),
        ("python -X dev -W error /srv/service.py", "service.py"),
        ("python -m whorl run --inspect-threshold 50ms --server service.py -x", "service.py"),
        ("python /usr/bin/whorl run shop.server:main", "shop.server:main"),
        ("python -m shop.server", "shop.server"),
        ("", "a program"),
        ("python", "python"),
    ],
)
def test_name_of_the_program_is_that_of_its_script(command: str, name: str) -> None:
    assert program(Made(command=command.replace(" ", "\0").encode()).recording()) == name


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (["/usr/bin/python3", "-u", "/srv/app/service.py", "--port", "1"], "service.py --port 1"),
        (["python", "-X", "dev", "-m", "uvicorn", "app:app"], "uvicorn app:app"),
        (["python", "-c", "import x"], "python -c import x"),
        (["python", "-c"], "python -c"),
        (["python", "-c", "from multiprocessing.spawn import spawn_main"], "a worker of multiprocessing"),
        (["/opt/bin/gunicorn"], "gunicorn"),
        (["python", "-m", "whorl", "run", "-m", "service", "-x"], "service -x"),
        (["python"], "python"),
        ([], "a program"),
    ],
)
def test_program_is_named_without_its_interpreter(command: list[str], text: str) -> None:
    assert " ".join(words_of_program(command)) == text


def test_turn_contains_its_sleep_and_its_steps() -> None:
    made = Made().event(layout.POLL, 100, 5 * MS, number=1)
    made.event(layout.STEP, 5 * MS + 164, 1600, name="handle", number=1)
    made.event(layout.TURN, 84, 3200, number=1)
    found = rows(made)
    assert spans(found, "turn") == [(0, 5003.2)]
    assert spans(found, "sleep") == [(0.016, 5000)]
    assert spans(found, "handle") == [(5000.08, 1.6)]


def test_span_that_outlasts_its_turn_by_rounding_is_cut() -> None:
    made = Made().event(layout.STEP, 115, 64, name="handle", number=1)
    made.event(layout.POLL, 100, 48).event(layout.TURN, 100, 32)
    assert spans(rows(made), "handle") == [(0.015, 0.032)]


def test_turn_lasts_as_long_as_its_last_step() -> None:
    made = Made().event(layout.STEP, 1000, 1600, name="handle", number=1).event(layout.TURN, 0, 1600)
    assert spans(rows(made), "turn") == [(0, 2.6)]


def test_task_is_a_span_from_its_making_to_its_end() -> None:
    made = Made().task(0, 5, "order 4711").event(layout.STEP, 1000, 1600, name="handle", number=5)
    made.event(layout.TASK_DONE, 3000, name="handle", number=5, flags=layout.FAILED)
    begin, end = (row for row in rows(made) if row["ph"] in "be")
    assert (begin["name"], begin["ts"], begin["args"]) == ("handle", 0, {"task": "order 4711"})
    assert (end["name"], end["ts"], end["args"]) == ("handle", 3, {"ended": "failed"})


def test_task_without_a_name_has_its_number() -> None:
    made = Made().task(0, 5).event(layout.TASK_DONE, 3000, name="handle", number=5)
    assert next(row["args"]["task"] for row in rows(made) if row["ph"] == "b") == "Task-5"


def test_half_that_the_ring_lost_is_added_and_flagged() -> None:
    made = Made().event(layout.MARK, 1000).event(layout.TASK_DONE, 2000, name="old", number=1)
    made.task(3000, 2).event(layout.MARK, 4000)
    halves = [row for row in rows(made) if row["ph"] in "be"]
    found = [(row["ph"], row["name"], row["ts"], row.get("args", {}).get("flag")) for row in halves]
    assert found == [
        ("b", "old", 0, trace.LOST_BEGIN),
        ("e", "old", 1, None),
        ("b", "a task", 2, None),
        ("e", "a task", 3, trace.LOST_END),
    ]


def test_wake_is_an_arrow_to_the_step_with_the_task_that_did_it() -> None:
    made = Made().task(0, 1, "waker").event(layout.WAKE, 500, name=1, number=2)
    made.event(layout.STEP, 1000, 1600, name="sleeper", number=2)
    begin, end = (row for row in rows(made) if row["ph"] in "sf")
    assert (begin["ts"], begin["args"]) == (0.5, {"by": "waker"})
    assert (end["ts"], end["bp"]) == (1, "e")


def test_counter_of_bytes_is_a_rate_from_where_its_time_began() -> None:
    made = Made().event(layout.BYTES_IN, 0, number=100).event(layout.BYTES_IN, MS, number=1100)
    counters = [(row["name"], row["ts"], row["args"]["value"]) for row in rows(made) if row["ph"] == "C"]
    assert counters == [("bytes in per second", 0, 1e6)]


def test_counters_of_two_loops_have_their_numbers() -> None:
    made = Made().loop(1).loop(2).event(layout.READY, 5, number=3, loop=2)
    assert [row["name"] for row in rows(made) if row["ph"] == "C"] == ["ready, loop 2"]


def test_stall_has_its_reason_its_shares_and_its_stack() -> None:
    (stall,) = (row for row in rows(Made().stall(0, 300 * MS)) if row.get("cat") == "stall")
    assert stall["name"] == "handle_order"
    assert stall["args"] == {
        "why": "the thread was blocked in clock_nanosleep",
        "task": "order 4711",
        "running in ms": 0.0,
        "asleep in ms": 300.0,
        "waiting for a processor in ms": 0.0,
        "stack after 50 ms": "handle_order (/srv/service.py:9)  time.sleep(0.3)",
    }


def test_stall_whose_event_is_lost_is_in_the_trace() -> None:
    made = Made(8).stall(0, 300 * MS)
    for number in range(8):
        made.event(layout.MARK, (100 + number) * MS)
    assert spans(rows(made), "handle_order") == [(0, 200_000)]


def test_handle_has_a_moment_when_it_was_opened_and_closed() -> None:
    made = Made().event(layout.HANDLE_OPENED, 0, name="Acceptor", number=trace.NO_DESCRIPTOR)
    made.event(layout.HANDLE_CLOSED, 1000, name="Acceptor", number=9)
    found = [(row["name"], row["ts"], row.get("args")) for row in rows(made) if row["ph"] == "i"]
    assert found == [("Acceptor opened", 0, None), ("Acceptor closed", 1, {"fd": 9})]


def test_collector_timers_and_marks_are_shown() -> None:
    made = Made().event(layout.COLLECTED, 0, 2 * MS, number=2)
    made.event(layout.TIMER_LATE, MS, 2 * MS, name="tick").event(layout.TIMER_LATE, MS, 99_200)
    made.event(layout.MARK, 2 * MS, name="deployed")
    found = rows(made)
    assert spans(found, "collector, generation 2") == [(0, 2000)]
    assert [(row["name"], row.get("args")) for row in found if row["ph"] == "i"] == [
        ("timer late", {"timer": "tick", "late in ms": 2.0}),
        ("deployed", None),
    ]


def test_callback_that_runs_at_the_end_is_a_span_until_then() -> None:
    made = Made().event(layout.MARK, 0)
    made.loop(run_began_ns=1, call_began_ns=MS, call_name=made.name("handle_order"), updated_ns=MS)
    made._set(layout.ALIVE_AT, 900 * MS)
    found = rows(made)
    assert spans(found, "handle_order") == [(1000, 899_000)]
    assert found[-1]["args"] == {"flag": trace.LOST_END}


def test_last_seconds_are_cut_at_their_beginning() -> None:
    made = Made().event(layout.MARK, 0, name="early").event(layout.STEP, 0, 1500 * MS, name="long", number=1)
    made.event(layout.MARK, 2000 * MS, name="late")
    found = rows(made, seconds=1)
    assert [row["name"] for row in found if row["ph"] == "i"] == ["late"]
    assert spans(found, "long") == [(0, 500_000)]


@pytest.mark.parametrize("number", [0, 200])
def test_event_of_a_later_version_is_left_out(number: int) -> None:
    assert [row["ph"] for row in rows(Made().event(number, 5))] == ["M", "M"] + ["M", "M"] * (number > 0)


def test_recording_without_events_makes_an_empty_trace() -> None:
    assert {row["ph"] for row in rows(Made())} == {"M"}


def test_names_are_escaped() -> None:
    made = Made(command=UGLY.encode()).task(0, 1, UGLY).event(layout.STEP, 1, 160, name=UGLY, number=1)
    text = written(made.stall(0, MS, call=UGLY, task=UGLY)).decode()
    assert "\x1b" not in text
    assert "\\u001b" not in text
    assert r"\\x1b]0;x\\x07<script>" in text


def test_same_recording_makes_the_same_bytes() -> None:
    data = served().data()
    assert written(Recording(data)) == written(Recording(data))
    zipped = written(Recording(data), compressed=True)
    assert zipped == written(Recording(data), compressed=True)
    assert gzip.decompress(zipped) == written(Recording(data))


def test_ring_that_went_round_keeps_its_last_events() -> None:
    made = Made(16)
    for number in range(50):
        made.event(layout.STEP, number * 1000, 160, name="handle", number=number)
    assert [row["cat"] for row in rows(made) if row["ph"] == "X"] == [
        f"step,task {number}" for number in range(34, 50)
    ]
