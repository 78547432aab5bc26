"""`start`, its arguments, and the environment variables that stand for them."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import whorl
from whorl.inspector import Inspector, start
from whorl.inspector.inspector import current
from whorl.inspector.settings import duration, from_environment
from whorl.inspector.watching.text import shown

Inspect = Callable[..., Inspector]


def test_starting_twice_is_starting_once(inspect: Inspect) -> None:
    first = inspect(threshold=0.2)
    assert start(threshold=0.2) is first
    with pytest.raises(ValueError, match="runs already"):
        start(threshold=0.3)
    first.stop()
    first.stop()
    assert current() is None
    assert inspect(threshold=0.3) is not first


@pytest.mark.parametrize("threshold", [0, -1, math.nan, math.inf, 3601])
def test_a_threshold_out_of_bounds_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match="above 0 and at most 3600 seconds"):
        start(threshold=threshold)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"threshold": "1"}, TypeError),
        ({"threshold": True}, TypeError),
        ({"loop": object()}, TypeError),
        ({"ring": 1 << 15}, ValueError),
        ({"ring": 1 << 31}, ValueError),
        ({"ring": "8MiB"}, TypeError),
        ({"keep": 0}, ValueError),
        ({"recording": ""}, ValueError),
        ({"recording": 3}, TypeError),
        ({"dump_on": ("crash",)}, ValueError),
    ],
)
def test_a_wrong_argument_is_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        start(**options)
    assert current() is None


def test_starting_looks_at_no_object_of_the_program(inspect: Inspect) -> None:
    class Shy:
        """An object that notes when it is asked for its class, as `isinstance` asks."""

        was_asked = False

        @property
        def __class__(self) -> type:
            Shy.was_asked = True
            return Shy

    things = [Shy() for _ in range(3)]
    inspect(recording="none")
    assert not Shy.was_asked
    assert [thing.__class__ for thing in things] == 3 * [Shy]
    assert Shy.was_asked


def test_a_closed_loop_is_refused() -> None:
    loop = whorl.new_event_loop()
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        start(loop)


@pytest.mark.parametrize(
    ("text", "seconds"), [("100ms", 0.1), ("1s", 1.0), ("2.5", 2.5), ("50us", 50e-6), (" 1ms", 0.001)]
)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "ms", "1m", "infs", "nan", "1 2", "-"])
def test_a_wrong_duration_names_the_forms(text: str) -> None:
    with pytest.raises(ValueError, match=r"100ms, 1s or 2\.5"):
        duration(text)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("1", {}),
        ("on", {}),
        ("", None),
        ("0", None),
        ("threshold=50ms", {"threshold": 0.05}),
        ("threshold=1s,keep=2", {"threshold": 1.0, "keep": 2}),
        ("ring=16MiB,all=1", {"ring": 16 << 20, "record_all": True}),
        ("recording=0", {"recording": False}),
        ("recording=/srv/x,keep=3", {"recording": "/srv/x", "keep": 3}),
        ("dump_on=stall+SIGUSR2", {"dump_on": ("stall", "SIGUSR2")}),
    ],
)
def test_the_variable_is_read(text: str, arguments: dict[str, Any] | None) -> None:
    assert from_environment(text) == arguments


@pytest.mark.parametrize("text", ["yes please", "threshold", "threshold=", "rings=1", "threshold=1,,"])
def test_a_wrong_variable_is_an_error_that_names_the_settings(text: str) -> None:
    with pytest.raises(ValueError, match=r"threshold=…|100ms"):
        from_environment(text)


def output_of(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path)), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


SHOWS_WHETHER = """
import sys, whorl
module = sys.modules.get("whorl.inspector.inspector")
print(module is not None, module is not None and module.current() is not None)
"""


@pytest.mark.parametrize(
    ("value", "shown"),
    [("", "False False"), ("1", "True True"), ("threshold=50ms", "True True"), ("0", "True False")],
)
def test_the_inspector_is_imported_only_if_the_variable_is_set(value: str, shown: str) -> None:
    answer = output_of(SHOWS_WHETHER, WHORL_INSPECT=value)
    assert (answer.stdout.strip(), answer.stderr) == (shown, "")


@pytest.mark.parametrize(
    "environment",
    [
        {"WHORL_INSPECT": "threshold=soon"},
        {"WHORL_INSPECT": "ring=1KiB"},
    ],
)
def test_a_wrong_variable_is_one_warning_and_the_program_runs(environment: dict[str, str]) -> None:
    answer = output_of("import asyncio, whorl; whorl.run(asyncio.sleep(0)); print('ran')", **environment)
    assert answer.returncode == 0
    assert answer.stdout == "ran\n"
    assert answer.stderr.count("\n") == 1
    assert "Nothing is inspected" in answer.stderr


STARTS_ITSELF = """
import asyncio, whorl
from whorl.inspector.inspector import current
loop = whorl.new_event_loop()
inspected = whorl.inspector.start({arguments})
assert current() is inspected
print(inspected.settings.threshold, inspected.settings.ring >> 20, inspected.settings.record_all)
assert whorl.inspector.start({arguments}) is inspected
try:
    whorl.inspector.start(threshold=9, ring=1 << 24, keep=3)
except ValueError as error:
    print("runs already" in str(error))
loop.close()
"""


@pytest.mark.parametrize(
    ("variable", "arguments", "shown"),
    [
        ("1", "", "0.1 8 False"),
        ("1", "threshold=0.05", "0.05 8 False"),
        ("1", "ring=1 << 21, record_all=True", "0.1 2 True"),
        ("threshold=70ms", "threshold=0.05", "0.07 8 False"),
        ("threshold=70ms", "threshold=0.05, ring=1 << 21", "0.07 2 False"),
        ("ring=4MiB,all=1", "loop, threshold=0.05, ring=1 << 21", "0.05 4 True"),
    ],
)
def test_the_program_takes_over_what_the_variable_started_and_what_that_names_stays(
    variable: str, arguments: str, shown: str
) -> None:
    code = STARTS_ITSELF.format(arguments=arguments)
    answer = output_of(code, WHORL_INSPECT=variable)
    assert (answer.stdout.splitlines(), answer.stderr) == ([shown, "True"], "")


TAKES_OVER = """
import asyncio, whorl
from whorl.core.recording.layout import MARK
async def main():
    first = whorl.inspector.inspector.current()
    first.mark("begun")
    inspected = whorl.inspector.start({arguments})
    await asyncio.sleep(0)
    inspected.mark("gone on")
    recording = whorl.inspector.read(inspected.recording)
    names = [recording.name(event.name_id) for event in recording.events() if event.kind == MARK]
    watched = inspected.loops() == [asyncio.get_running_loop()]
    print(inspected is first, names, len(recording.loops()), watched)
whorl.run(main())
"""


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ("threshold=0.05", "True ['begun', 'gone on'] 1 True"),
        ("record_all=True", "False ['gone on'] 1 True"),
    ],
)
def test_a_loop_that_runs_is_recorded_on_by_the_program_that_takes_over(arguments: str, shown: str) -> None:
    answer = output_of(TAKES_OVER.format(arguments=arguments), WHORL_INSPECT="1")
    assert (answer.stdout.strip(), answer.stderr) == (shown, "")


def test_settings_of_the_variable_hold_after_a_stop() -> None:
    code = "from whorl.inspector import start\nwith start(): pass\nprint(start().settings.threshold)"
    assert output_of(code, WHORL_INSPECT="threshold=70ms").stdout == "0.07\n"


def test_the_command_line_comes_before_the_variable_and_the_program(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import whorl; s = whorl.inspector.start(threshold=0.05, ring=1 << 21).settings\n"
        "print(s.threshold, s.ring >> 20, s.keep)"
    )
    answer = subprocess.run(
        [sys.executable, "-m", "whorl", "run", "--inspect-threshold", "60ms", script],
        env={
            **os.environ,
            "PYTHONPATH": ":".join(filter(None, sys.path)),
            "WHORL_INSPECT": "threshold=70ms,keep=3",
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (answer.stdout, answer.stderr) == ("0.06 2 3\n", "")


def test_a_text_is_shown_without_control_characters() -> None:
    assert shown("a\x1b[31m\n\u202e\ud800") == r"a\x1b[31m\n\u202e\ud800"
    assert shown("ü" * 500).endswith("…")
    assert len(shown("ü" * 500).encode()) <= 256
    assert shown("x" * 256) == "x" * 256
