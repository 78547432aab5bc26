"""The page of a recording: its verdict, its parts, and that nothing of the program's is code in it."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from tests.inspector.recordings.made_recordings import MS, UGLY, Made, served
from whorl.core import states
from whorl.core.recording import layout
from whorl.inspector.recordings import page as page_
from whorl.inspector.recordings.over_time import COLUMNS, OverTime
from whorl.inspector.recordings.summary import Summary
from whorl.inspector.recordings.timeline import Timeline


class Page(HTMLParser):
    """The texts, titles and tags of a page; tags must be closed in their order."""

    def __init__(self, made: Made, **options: float) -> None:
        super().__init__()
        self.html = page_.page(made.recording(), **options)  # type: ignore[arg-type]
        self.titles: list[str] = []
        self.words: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self._open: list[str] = []
        self.feed(self.html)
        assert self._open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attributes
        if tag != "meta":
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("style", "script"):
            if self._open[-1] in ("h2", "h3"):
                self.titles.append(data)
            self.words.append(data)

    @property
    def text(self) -> str:
        """The words of the page."""
        return " ".join(" ".join(self.words).split())


def verdict(made: Made) -> list[tuple[str, str]]:
    """Return what the page says of a recording."""
    return Summary(Timeline(made.recording())).verdict()


def test_page_says_first_what_it_is_and_what_is_wrong() -> None:
    text = Page(served()).text
    assert text.startswith("service.py: what its loop did service.py python service.py process 7")
    assert "The loop was blocked 2 times for more than 100 ms, longest for 400 ms in handle_order." in text
    assert "In the longest stall, the thread was blocked in clock_nanosleep." in text


def test_parts_come_in_the_order_of_questions() -> None:
    made = served().histogram(states.AWAY, {200: 9}, 1 << 20)
    titles = [title for title in Page(made).titles if title.strip()]
    expected = ["Over time", "2 stalls", "How long things take", "Callbacks and coroutines", "Tasks"]
    assert [title for title in titles if title in expected] == expected
    assert titles[-1] == "Bytes and connections"


def test_stalls_at_the_same_line_are_one_card() -> None:
    page = Page(served())
    assert page.tags.count("pre") == 1
    assert "It happened 1 more time: 400 ms." in page.text
    assert [value for name, value in page.attributes if name == "href"] == ["#stall-1", "#stall-2"]


def test_page_needs_no_network_and_allows_only_its_own_script() -> None:
    page = Page(served())
    assert "default-src 'none'" in page.html
    assert page.tags.count("script") == 1
    assert {name for name, _ in page.attributes} & {"src", "onclick", "onload"} == set()
    assert "http" not in page.html.replace("http-equiv", "")


def test_names_of_the_program_are_text() -> None:
    made = Made(command=b"python\0" + UGLY.encode(), whorl=UGLY[:20]).loop(tasks_made=1).task(0, 1, UGLY)
    made.event(layout.STEP, 1, 160 * MS, name=UGLY, number=1)
    made.event(layout.HANDLE_OPENED, 2, name=UGLY, number=3).event(layout.MARK, 3, name=UGLY)
    frames = [[UGLY, 3, UGLY, UGLY]]
    stacks = [{"after_ns": MS, "frames": frames, "late": False}, {"after_ns": MS, "frames": [], "late": True}]
    made.stall(0, 160 * MS, call=UGLY, task=UGLY, file=UGLY, syscall=UGLY, stacks=stacks)
    page = Page(made)
    assert page.tags.count("script") == 1
    assert "\x1b" not in page.html
    assert '"\\x1b]0;x\\x07<script>' in page.text


@pytest.mark.parametrize(
    "wrong",
    [
        {"stacks": None, "call": 5, "began_ns": "x", "reason": ["x"]},
        {"stacks": [3, {"frames": [7, [], {"file": "a", "line": 3}]}], "shares": 9},
        {"length_ns": None, "number": None, "running_ns": None, "asleep_ns": 1.5, "ended": 0},
    ],
)
def test_stall_that_is_damaged_harms_no_page(wrong: dict[str, object]) -> None:
    made = Made().event(layout.MARK, 0)
    assert "stall" in Page(made.stall(0, MS, **wrong)).text


def test_recording_without_events_has_a_page() -> None:
    text = Page(Made()).text
    assert "Nothing blocked the loop: no callback took longer than 100 µs." in text
    assert "The recording has no events." in text


def test_verdict_names_the_longest_callback_when_nothing_blocked() -> None:
    made = Made().event(layout.STEP, 0, 12 * MS, name="handle", number=1)
    assert verdict(made) == [
        ("good", "Nothing blocked the loop: the longest callback took 12 ms, in handle.")
    ]


def test_verdict_knows_blocking_without_the_watchdog() -> None:
    made = Made().event(layout.CALLBACK, 0, 480 * MS, name="refresh")
    assert verdict(made) == [("bad", "The loop was blocked once, for 480 ms, in refresh.")]


def test_verdict_knows_an_iteration_of_many_callbacks_without_the_watchdog() -> None:
    made = Made().event(layout.TURN, 0, 4700 * MS, number=40_000)
    made.event(layout.CALLBACK, MS, 45 * MS, name="tick")
    assert verdict(made) == [
        ("bad", "The loop was blocked once, for 4.7 s, in one iteration of 40,000 callbacks.")
    ]


def test_verdict_names_the_calls_of_a_stall_of_many_callbacks() -> None:
    made = Made().event(layout.TURN, 0, 4700 * MS, number=40_000)
    callers = [["tick", 4606 * MS], ["other", 94 * MS]]
    more = {"reason": "many callbacks", "callbacks": 40_000, "callers": callers, "place": "tick (storm.py:4)"}
    made.stall(0, 4700 * MS, **more)
    assert verdict(made) == [
        ("bad", "The loop was blocked once, for 4.7 s, in 40,000 callbacks, most of all tick (storm.py:4)."),
        (
            "bad",
            "In the longest stall, none took so long alone: tick 98 %, other 2 %."
            " Start fewer at once, or let others in between with await asyncio.sleep(0).",
        ),
    ]


def test_verdict_does_not_tell_a_wait_for_a_processor_as_the_programs_fault() -> None:
    made = Made().event(layout.STEP, 0, 258 * MS, name="run_asgi", number=1)
    made.memory[layout.STARVED_AT : layout.STARVED_AT + 8] = (40).to_bytes(8, "little")
    assert verdict(made) == [
        (
            "warn",
            "The loop waited for a processor that other programs had: 40 times, that alone made it late."
            " By the clock, run_asgi took 258 ms."
            " Give it a processor: a lower `nice`, a higher limit, fewer neighbours.",
        )
    ]


def test_verdict_tells_of_a_stall_beside_waits_for_a_processor() -> None:
    made = Made().event(layout.STEP, 0, 300 * MS, name="handle", number=1).stall(0, 300 * MS)
    made.memory[layout.STARVED_AT : layout.STARVED_AT + 8] = (1).to_bytes(8, "little")
    found = verdict(made)
    assert [kind for kind, _ in found] == ["bad", "bad", "warn"]
    assert "By the clock" not in found[2][1]


def test_verdict_of_a_stuck_loop_comes_first() -> None:
    made = Made().event(layout.STEP, 0, 200 * MS, name="handle", number=1).task(5, 3, "order 4711")
    made.loop(run_began_ns=1, call_began_ns=MS, call_name=made.name("handle_order"), call_task=3)
    made.memory[layout.ALIVE_AT : layout.ALIVE_AT + 8] = (3001 * MS).to_bytes(8, "little")
    assert verdict(made)[0] == (
        "bad",
        "The loop had been in handle_order of order 4711 for 3 s at the end, and answered nobody.",
    )


def test_verdict_warns_of_a_busy_loop_a_late_timer_and_the_collector() -> None:
    made = Made().loop().event(layout.UTILIZATION, 0).event(layout.UTILIZATION, 100 * MS, number=950)
    made.event(layout.COLLECTED, 0, 20 * MS).histogram(states.LATE, {400: 3}, 80 * MS)
    assert [text for kind, text in verdict(made) if kind == "warn"] == [
        "It was busy for 95 % of the time, and has no reserve.",
        "One timer in a hundred was late by 80 ms or more.",
        "Python's garbage collector took 20 % of the time, in 1 run.",
    ]


def test_verdict_leaves_out_runs_of_the_collector_in_other_threads() -> None:
    made = Made().event(layout.MARK, 0).event(layout.MARK, 100 * MS)
    for at in (0, 30, 60):
        made.event(layout.COLLECTED, at * MS, 20 * MS, loop=0)
    made.event(layout.COLLECTED, 90 * MS, 4 * MS)
    assert [text for _, text in verdict(made) if "collector" in text] == []


def test_columns_have_the_part_of_the_time_that_was_busy() -> None:
    made = Made().event(layout.MARK, 0).event(layout.MARK, 240 * MS)
    for at, share in ((60, 0), (120, 1000), (240, 0)):
        made.event(layout.UTILIZATION, at * MS, number=share)
    busy = OverTime(Summary(Timeline(made.recording())), 1).busy
    assert [round(value, 6) for value in busy] == [0] * 60 + [1] * 60 + [0] * (COLUMNS - 120)


def test_column_shows_its_longest_callback() -> None:
    made = Made().event(layout.MARK, 0).event(layout.MARK, 240 * MS)
    made.event(layout.STEP, 100, MS, name="short", number=1).event(layout.CALLBACK, 900, 3 * MS, name="long")
    longest = OverTime(Summary(Timeline(made.recording())), 1).longest
    assert longest == {0: ("long", 900, 3 * MS)}


def test_busiest_tasks_are_those_whose_steps_took_longest_together() -> None:
    made = Made().task(0, 1, "one").task(0, 2, "two")
    for number, took in ((1, 5), (2, 4), (2, 4)):
        made.event(layout.STEP, 1, took * MS, name="handle", number=number)
    tasks = Summary(Timeline(made.recording())).busiest_tasks()
    assert [(task.kind, task.count, task.total_ns) for task in tasks] == [
        ("two", 2, 8 * MS),
        ("one", 1, 5 * MS),
    ]
