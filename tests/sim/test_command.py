"""`whorl sim`, as its users start it: in a process of its own."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("click", reason="the command line needs Click")
pytestmark = pytest.mark.slow

Run = Callable[..., tuple[int, str]]

PROGRAM = """
import asyncio
import sys
from whorl import sim

async def main(world):
    await asyncio.sleep(0.01)
    assert world.choose(5, "way") != 3

async def calm():
    await asyncio.sleep(1)

async def leaves():
    global kept
    kept = await asyncio.start_server(print, "10.0.0.1", 80)

async def hangs(world):
    if world.choose(2, "way"):
        await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=300)

async def hashes():
    print("HASH", hash("text"))

async def late():
    waiter = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.002, waiter.cancel)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiter.cancelled()

async def two(world, other):
    pass

async def arguments():
    print("ARGUMENTS", sys.argv)

async def whose():
    print("TASK", type(asyncio.current_task()).__module__)

async def addresses():
    for thing in {Thing(number) for number in range(64)}:
        await asyncio.sleep(thing.number / 1000)

class Thing:
    def __init__(self, number):
        self.number = number

@sim.test(seeds=3)
async def short_test(world):
    await asyncio.sleep(1)
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run `whorl sim` to its end beside a program: its exit code and its output."""
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    environment["PYTHONPATH"] = ":".join(filter(None, sys.path))

    def run(*arguments: str, types: str = "") -> tuple[int, str]:
        command = [sys.executable, "-W", "error", "-m", "whorl", "sim", *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, input=types, capture_output=True, text=True, timeout=60
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_run_ends_with_0_without_a_finding(run: Run) -> None:
    code, output = run("run", "program.py::calm", "--seeds", "10")
    assert (code, "10 runs" in output, "no finding" in output) == (0, True, True), output


def test_run_ends_with_1_for_a_finding_whose_command_replays_it(run: Run) -> None:
    code, output = run("run", "program.py", "--shrink", "5")
    assert code == 1
    command = re.search(r"^  whorl sim (replay .*)$", output, re.MULTILINE)
    assert command
    code, again = run(*shlex.split(command[1]))
    assert code == 1
    assert "the program's choice 'way' was 3" in again


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("run", "nothing.py"), "there is no file 'nothing.py'"),
        (("run", "program.py::nobody"), "has no 'nobody'"),
        (("run", "program.py::Thing"), "is no coroutine function"),
        (("replay", "1:calm:x:", "program.py"), "is no tape"),
        (("trace", "program.py"), "is no trace"),
        (("run", "program.py", "--faults", "some"), "Invalid value for '--faults'"),
        (("run", "program.py", "--cpu", "2"), "Invalid value for '--cpu'"),
        (("run", "program.py", "--tasks", "some"), "Invalid value for '--tasks'"),
    ],
)
def test_wrong_arguments_end_with_2(run: Run, arguments: tuple[str, ...], text: str) -> None:
    code, output = run(*arguments)
    assert code == 2
    assert text in output


def test_interrupted_run_ends_with_130(tmp_path: Path) -> None:
    (tmp_path / "stops.py").write_text("async def main():\n    raise KeyboardInterrupt\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "whorl", "sim", "run", "stops.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_run_ends_with_3_if_runs_are_not_deterministic(run: Run) -> None:
    code, output = run("run", "program.py::addresses", "--seeds", "3")
    assert code == 3
    assert "two runs part at kernel call" in output


def test_run_takes_the_options_of_a_test(run: Run) -> None:
    code, output = run("run", "program.py::short_test")
    assert (code, "3 runs" in output) == (0, True), output


def test_hashes_of_texts_are_those_of_the_first_seed(run: Run) -> None:
    def shown(*arguments: str) -> set[str]:
        return set(re.findall(r"HASH (\S+)", run(*arguments)[1]))

    seven = shown("run", "program.py::hashes", "--seeds", "2", "--from", "7")
    assert len(seven) == 1
    assert shown("replay", "7", "program.py::hashes") == seven
    assert shown("replay", "0:calm:7:", "program.py::hashes") == seven
    assert shown("replay", "8", "program.py::hashes") != seven


def test_traces_of_two_seeds_part(run: Run, tmp_path: Path) -> None:
    for seed in ("0", "2"):
        run("replay", seed, "program.py::calm", "--trace", f"{seed}.trace")
    assert run("diff", "0.trace", "0.trace")[0] == 0
    code, output = run("diff", "0.trace", "2.trace")
    assert code == 1
    assert "The traces part at call" in output
    code, output = run("trace", "0.trace", "--host", "main")
    assert code == 0
    assert "epoll_wait" in output
    assert "epoll_wait" not in run("trace", "0.trace", "--host", "other")[1]


def test_shrink_writes_the_tape_that_replays(run: Run, tmp_path: Path) -> None:
    tape = "1:calm::choice/way.0=3,main/cpu.0=4,cpu/model.0=1"
    code, output = run("shrink", tape, "program.py", "--seconds", "5", "--out", "small.tape")
    assert code == 1
    assert "Shrunk from 3 decisions to 1" in output
    assert len((tmp_path / "small.tape").read_text().splitlines()) == 2
    code, output = run("replay", "small.tape", "program.py")
    assert code == 1


def test_a_tape_of_another_program_ends_with_3(run: Run) -> None:
    run("shrink", "1:calm::choice/way.0=3", "program.py", "--out", "small.tape")
    code, output = run("replay", "small.tape", "program.py::calm")
    assert code == 3
    assert "another run than that of the tape" in output


def test_limits_name_every_refusal(run: Run) -> None:
    code, output = run("limits")
    assert code == 0
    assert all(name in output for name in ("RealDescriptor", "RealThread", "BlockingSocket", "OtherLoop"))


def test_soak_goes_on_where_the_last_one_ended(run: Run, tmp_path: Path) -> None:
    code, output = run("soak", "kept", "program.py::calm", "--seconds", "0.01", "--batch", "10")
    assert code == 0, output
    first = json.loads((tmp_path / "kept" / "soak.json").read_text())["next"]
    code, output = run("soak", "kept", "--seconds", "0.01", "--batch", "10")
    assert f"Seeds {first} to" in output


def test_soak_keeps_the_report_of_a_finding(run: Run, tmp_path: Path) -> None:
    code, output = run("soak", "kept", "program.py", "--seconds", "0.5", "--batch", "40")
    assert code == 1, output
    report = next((tmp_path / "kept").glob("finding-*.txt")).read_text()
    assert "the program's choice 'way' was 3" in report


def test_leak_that_is_allowed_is_no_finding(run: Run) -> None:
    code, output = run("run", "program.py::leaves", "--seeds", "3", "--allow", "leaks")
    assert code == 0
    assert "Remark, of 3 runs: descriptors were not closed: " in output


def test_replay_of_a_run_that_may_use_files_allows_it_too(run: Run) -> None:
    code, output = run("run", "program.py::leaves", "--seeds", "1", "--allow", "files")
    assert code == 1
    shown = re.search("whorl sim (replay .*)", output)
    assert shown
    assert shown[1].endswith(" program.py::leaves --allow files")
    assert run(*shlex.split(shown[1]))[0] == 1


def test_stall_is_found_and_its_command_replays_it(run: Run) -> None:
    assert run("run", "program.py::hangs", "--seeds", "20")[0] == 0
    code, output = run("run", "program.py::hangs", "--seeds", "20", "--stall", "60")
    assert code == 1
    shown = re.search("whorl sim (replay .*)", output)
    assert shown is not None
    assert shown.group(1).endswith(" --stall 60.0")
    code, output = run(*shlex.split(shown.group(1)))
    assert code == 1
    assert "stall at 66000.000 ms, host main: longer than 60 s: task " in output


def test_soak_looks_for_stalls_as_the_last_one_did(run: Run, tmp_path: Path) -> None:
    short = ("--seconds", "1", "--batch", "5")
    assert run("soak", "kept", "program.py::hangs", *short)[0] == 0
    assert run("soak", "kept", *short, "--stall", "60")[0] == 1
    assert json.loads((tmp_path / "kept" / "soak.json").read_text())["stall_s"] == 60
    assert run("soak", "kept", *short)[0] == 1


def test_soak_keeps_the_limits_of_its_runs(run: Run, tmp_path: Path) -> None:
    short = ("--seconds", "1", "--batch", "5")
    assert run("soak", "kept", "program.py::calm", *short, "--limit", "0.5")[0] == 1
    assert json.loads((tmp_path / "kept" / "soak.json").read_text())["limit_s"] == 0.5


def test_code_takes_no_time_where_the_command_says_so(run: Run) -> None:
    code, output = run("run", "program.py::late", "--seeds", "30")
    assert code == 1, output
    shown = re.search("whorl sim (replay .*)", output)
    assert shown is not None
    assert run(*shlex.split(shown.group(1)))[0] == 1
    assert run("run", "program.py::late", "--seeds", "30", "--cpu", "0")[0] == 0


def test_command_says_whose_tasks_the_loops_make(run: Run) -> None:
    def made_by(*options: str) -> str:
        shown = re.search(r"TASK (\S+)", run("replay", "0", "program.py::whose", *options)[1])
        assert shown is not None
        return shown[1]

    assert made_by() == made_by("--tasks", "cpython") == "whorl.sim.patches.futures"
    assert made_by("--tasks", "compiled") == "whorl.sim.process.tasks"


def test_debugger_stands_where_a_replayed_run_has_failed(run: Run) -> None:
    code, output = run("run", "program.py", "--shrink", "0")
    assert code == 1
    shown = re.search("whorl sim (replay .*)", output)
    assert shown is not None
    code, output = run(*shlex.split(shown.group(1)), "--pdb", types="where\n")
    assert code == 1
    assert '-> assert world.choose(5, "way") != 3' in output


def test_program_that_cannot_be_imported_is_told_in_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import asyncio\nimport no_such_module\n", encoding="utf-8")
    code, output = run("run", "broken.py")
    assert code == 2
    line = output.strip().splitlines()[-1]
    assert line.endswith("broken.py:2: ModuleNotFoundError: No module named 'no_such_module'")
    assert "Traceback" not in output


def test_program_that_needs_more_than_the_world_is_told_in_one_line(run: Run) -> None:
    code, output = run("run", "program.py::two")
    assert code == 2
    assert "program.py::two needs world and other; a program takes the world, or nothing" in output


def test_program_has_arguments_of_its_own(run: Run) -> None:
    assert "ARGUMENTS ['program.py']" in run("replay", "0", "program.py::arguments")[1]


def test_run_begins_with_the_first_seed_that_it_is_given(run: Run) -> None:
    assert (
        "10 runs of seeds 200 to 209" in run("run", "program.py::calm", "--seeds", "10", "--first", "200")[1]
    )


def test_limits_of_a_run_are_options_and_in_the_command_that_replays_it(run: Run) -> None:
    code, output = run("run", "program.py::calm", "--limit", "0.5")
    assert code == 1
    assert "the run takes more than 0.5 virtual seconds (limit_s)" in output
    shown = re.search("whorl sim (replay .*)", output)
    assert shown is not None
    assert shown.group(1).endswith(" --limit 0.5")
    assert run(*shlex.split(shown.group(1)))[0] == 1
    assert "more than 3 turns (turns)" in run("run", "program.py::late", "--turns", "3")[1]
