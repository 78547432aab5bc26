"""Runs the suite module by module, each in a process of its own that may hang or crash."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("worker.py")

# A module whose process dies this often is given up.
MAX_RESTARTS = 20


@dataclass(frozen=True)
class Outcome:
    """The outcome of one test."""

    id: str
    outcome: str  # passed, failed, absent (a loop method is), skipped, skipped by CPython
    reason: str = ""
    turns: int = 0
    stock_turns: int = 0
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return self.outcome == "passed"


@dataclass
class ModuleRun:
    """The outcomes of the tests of one module."""

    module: str
    found: Collection[str] = ()
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    skips: dict[str, str] = field(default_factory=dict)  # The private name for each listed test.
    absent: dict[str, str] = field(default_factory=dict)  # A method that a test asked for and is not there.

    def with_outcome(self, *kinds: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes.values() if outcome.outcome in kinds]

    @property
    def run(self) -> list[Outcome]:
        return self.with_outcome("passed", "failed", "absent")


class Runner:
    """Starts workers for one kind of loop and reads what they wrote."""

    def __init__(self, loop: str, timeout: float, *, with_skipped: bool = False) -> None:
        self._loop = loop
        self._timeout = timeout
        self._with_skipped = with_skipped

    def run(self, module: str, only: Collection[str] = ()) -> ModuleRun:
        """Run a module or some of its tests; a test that ends its process fails and the others go on."""
        result = ModuleRun(module)
        self._run_into(result, only)
        lost = set(result.found) - set(result.outcomes) - set(result.skips)
        if lost:
            result.complaints.append(f"{module}: no outcome of {', '.join(sorted(lost))}")
        for one in result.with_outcome("failed"):
            if one.id in result.absent:
                result.outcomes[one.id] = replace(one, outcome="absent", reason=result.absent[one.id])
        for test, name in result.skips.items():
            if not self._with_skipped:
                result.outcomes[test] = Outcome(test, "skipped", name)
            elif test in result.outcomes and result.outcomes[test].passed:
                result.complaints.append(f"{test}: passes and need not be skipped for {name}")
        return result

    def _run_into(self, result: ModuleRun, only: Collection[str]) -> None:
        module = result.module
        result.found = todo = only
        for _ in range(MAX_RESTARTS):
            lines, returncode, log = self._work(module, todo)
            started = _absorb(lines, result)
            if returncode == 0:
                return
            left_out = set() if self._with_skipped else set(result.skips)
            todo = [test for test in result.found if test not in result.outcomes and test not in left_out]
            if not started or not todo:
                result.complaints.append(f"{module}: died outside of its tests ({returncode})\n{log[-8000:]}")
                return
            result.outcomes[started[-1]] = _died(started[-1], returncode, log)
            todo = [test for test in todo if test != started[-1]]
            if not todo:
                return
        result.complaints.append(f"{module}: given up after {MAX_RESTARTS} hangs and crashes")

    def _work(self, module: str, only: Collection[str]) -> tuple[list[dict[str, Any]], int, str]:
        """Run one worker to its end; return the lines it wrote, its exit status and what it printed."""
        with tempfile.TemporaryDirectory(prefix="conformance-") as directory:
            return self._work_in(Path(directory), module, only)

    def _work_in(
        self, directory: Path, module: str, only: Collection[str]
    ) -> tuple[list[dict[str, Any]], int, str]:
        lines, wanted, log = directory / "lines", directory / "wanted", directory / "log"
        command = [sys.executable, str(WORKER), module, "--loop", self._loop]
        command += ["--lines", str(lines), "--timeout", str(self._timeout)]
        if self._with_skipped:
            command.append("--with-skipped")
        if only:
            wanted.write_text("\n".join(only))
            command += ["--only", str(wanted)]
        with log.open("w") as output:
            returncode = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=_environment(),
                check=False,
            ).returncode
        text = lines.read_text() if lines.exists() else ""
        printed = log.read_text(errors="replace")
        return [json.loads(line) for line in text.splitlines()], returncode, printed


def _environment() -> dict[str, str]:
    """Leave out what would make the suite's own warnings errors or change how its loops start."""
    unwanted = ("PYTHONWARNINGS", "PYTHONASYNCIODEBUG", "PYTHONDEVMODE")
    return {name: value for name, value in os.environ.items() if name not in unwanted}


def _absorb(lines: list[dict[str, Any]], result: ModuleRun) -> list[str]:
    """Add a worker's lines to the result; return the tests that it started."""
    started = []
    for line in lines:
        match line["event"]:
            case "found":
                result.found = line["ids"]
            case "start":
                started.append(line["id"])
            case "stop":
                result.outcomes[line["id"]] = Outcome(**{key: line[key] for key in line if key != "event"})
            case "absent":
                result.absent[line["id"]] = line["method"]
            case "skip":
                result.skips[line["id"]] = line["name"]
            case "complaint":
                result.complaints.append(line["text"])
    return started


def _died(test: str, returncode: int, log: str) -> Outcome:
    how = f"killed by signal {-returncode}" if returncode < 0 else f"exit status {returncode}"
    return Outcome(test, "failed", f"{log[-8000:]}\nhung or crashed: its process ended ({how})")
