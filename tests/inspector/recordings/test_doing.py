"""A recording tells of the present, too."""

from __future__ import annotations

from typing import Any

import pytest

from whorl.inspector.recordings.doing import lengthened
from whorl.inspector.watching.stacks import parse_dumps

STALL: dict[str, Any] = {
    "began_ns": 1_000_000_000,
    "length_ns": 218_000_000,
    "ended": False,
    "text": "f has blocked the loop for 218 ms: it was running (running 200 ms)\nStack",
}


def test_stall_that_goes_on_is_as_long_as_it_is_now() -> None:
    found = lengthened(STALL, 7_300_000_000)
    assert found["length_ns"] == 6_300_000_000
    assert found["text"] == "f has blocked the loop for 6.3 s: it was running (running 200 ms)\nStack"


@pytest.mark.parametrize(
    "changed", [{"ended": True}, {"began_ns": None}, {"length_ns": "x"}, {"length_ns": 10**10}]
)
def test_stall_that_has_ended_or_is_damaged_stays_as_it_is(changed: dict[str, Any]) -> None:
    stall = {**STALL, **changed}
    assert lengthened(stall, 7_300_000_000) is stall


def test_name_ends_no_line_of_a_stack() -> None:
    text = '  File "/a\u2028b/\x1c.py", line 3 in do\u2029it\n  File "/main.py", line 9 in <module>\n'
    [frames] = parse_dumps(text, lambda file, line: "")
    assert [frame[:3] for frame in frames] == [
        ("/main.py", 9, "<module>"),
        ("/a\u2028b/\x1c.py", 3, "do\u2029it"),
    ]
