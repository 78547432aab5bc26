"""Runs a suite on one kind of loop, in a process that may hang or crash, and reads its results."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from environments import Environment

SWAP = Path(__file__).with_name("swap")

MAX_RESTARTS = 10  # A suite whose process dies this often is given up.
# Variables of ours that tests would act upon.
UNWANTED = (
    "PYTHONWARNINGS",
    "PYTHONASYNCIODEBUG",
    "PYTHONDEVMODE",
    "PYTHONPATH",
    "WHORL_BUILD",
    "WHORL_CONFIG",
    "CI",
)
PYTEST_ANSWERS = {0, 1, 5}  # All passed, some failed, nothing collected.


@dataclass
class Outcome:
    """The outcome of one test; the worst of its phases counts."""

    outcome: str = ""  # passed, failed, skipped, expected failure
    reason: str = ""
    whorl_turns: int = 0
    asyncio_turns: int = 0


@dataclass
class Run:
    """The outcomes of the tests of a suite."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def with_outcome(self, *kinds: str) -> set[str]:
        return {test for test, one in self.outcomes.items() if one.outcome in kinds}

    def on(self, loop: str) -> int:
        """Return the number of tests that passed while a loop of this kind ran turns in their process."""
        passed = (one for one in self.outcomes.values() if one.outcome == "passed")
        return sum(bool(one.whorl_turns if loop == "whorl" else one.asyncio_turns) for one in passed)


def run(environment: Environment, loop: str, whorl: Path, only: Collection[str] = ()) -> Run:
    """Run a suite or some of its tests; a test that ends its process fails and the others go on."""
    result, todo, began = Run(), only, time.monotonic()
    found: Collection[str] = only
    for _ in range(MAX_RESTARTS):
        with tempfile.TemporaryDirectory(prefix="suite-") as folder:
            code, log, lines = _work(environment, loop, whorl, Path(folder), todo)
        in_flight, collected = _absorb(lines, result)
        found = found or collected
        result.seconds = time.monotonic() - began
        if code in PYTEST_ANSWERS and not in_flight:
            return result
        if not in_flight:
            result.complaints.append(f"died outside of its tests (exit status {code})\n{log[-6000:]}")
            return result
        for test in in_flight:
            result.outcomes[test] = Outcome("failed", f"{log[-6000:]}\nhung or crashed (exit status {code})")
        todo = [test for test in found if test not in result.outcomes]
        if not todo:
            return result
    result.complaints.append(f"given up after {MAX_RESTARTS} hangs and crashes")
    return result


def _work(
    environment: Environment, loop: str, whorl: Path, folder: Path, only: Collection[str]
) -> tuple[int | str, str, list[dict[str, Any]]]:
    """Run one process to its end: its exit status, what it printed, the lines of the plugin."""
    lines, log = folder / "lines", folder / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            _command(environment),
            cwd=environment.source,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=_variables(environment, loop, whorl, folder, only),
            start_new_session=True,
        )
        code: int | str
        try:
            code = process.wait(environment.suite.run_seconds)
        except subprocess.TimeoutExpired:
            code = f"stopped after {environment.suite.run_seconds:.0f} s"
        finally:
            _end_session(process)
    text = lines.read_text() if lines.exists() else ""
    printed = log.read_text(errors="replace")
    (environment.folder / f"{loop}{'-again' if only else ''}.log").write_text(printed)
    return code, printed, [json.loads(line) for line in text.splitlines()]


def _command(environment: Environment) -> list[str]:
    suite = environment.suite
    command = [str(environment.python), "-m", "pytest", "-p", "suite_outcomes", "-p", "no:cacheprovider"]
    command += ["-o", "faulthandler_timeout=0", *suite.options]  # Ours ends the process, pytest's does not.
    left_out = [f"--ignore={path}" for path in suite.ignore]
    left_out += [f"--deselect={test}" for test in suite.leave_out]
    return [*command, *left_out, *suite.tests]


def _variables(
    environment: Environment, loop: str, whorl: Path, folder: Path, only: Collection[str]
) -> dict[str, str]:
    """Return the environment variables of a run, with those that `swap/` reads."""
    suite, wanted = environment.suite, folder / "only"
    variables = {name: value for name, value in os.environ.items() if name not in UNWANTED}
    variables |= suite.environment
    variables["PATH"] = os.pathsep.join((str(environment.python.parent), variables["PATH"]))
    variables["PYTHONPATH"] = os.pathsep.join((str(SWAP), str(whorl)))
    variables["WHORL_SUITE_LOOP"], variables["WHORL_SUITE_LINES"] = loop, str(folder / "lines")
    variables["WHORL_SUITE_SECONDS"] = str(suite.test_seconds)
    if suite.as_uvloop:
        variables["WHORL_SUITE_AS_UVLOOP"] = str(environment.source)
    if only:
        wanted.write_text("\n".join(only))
        variables["WHORL_SUITE_ONLY"] = str(wanted)
    return variables


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """End what the tests left running: it is all in the process group of its own that was made for it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _absorb(lines: list[dict[str, Any]], result: Run) -> tuple[list[str], list[str]]:
    """Add a process's lines to the result; return the tests that never ended, and all that it collected."""
    in_flight: dict[str, None] = {}
    found: list[str] = []
    for line in lines:
        match line["event"]:
            case "found":
                found = line["ids"]
            case "start":
                in_flight[line["id"]] = None
            case "uncollected":
                result.outcomes[line["id"]] = Outcome("failed", line["reason"])
            case "report":
                _add(result.outcomes.setdefault(line["id"], Outcome()), line)
                if line["phase"] == "teardown":
                    in_flight.pop(line["id"], None)
    return list(in_flight), found


def _add(one: Outcome, line: dict[str, Any]) -> None:
    whorl_turns, asyncio_turns = line["turns"]
    one.whorl_turns += whorl_turns
    one.asyncio_turns += asyncio_turns
    if line["outcome"] == "failed":
        one.reason += f"--- {line['phase']}\n{line['reason']}\n"
        one.outcome = "failed"
    elif one.outcome != "failed" and (line["phase"] == "call" or line["outcome"] != "passed"):
        one.outcome = line["outcome"]
