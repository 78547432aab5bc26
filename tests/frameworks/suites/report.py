"""Prints a line per suite, and every test that is not as on asyncio; keeps outcomes in files."""

import dataclasses
import json
from pathlib import Path

from comparison import Comparison
from definitions import Suite
from environments import Environment
from runs import Outcome, Run

COLUMNS = ("tests", "asyncio", "whorl", "turned", "both fail", "only whorl", "flaky", "seconds")

MAX_LINES = 20  # of what is printed of one test; the files have all of it


def print_heading() -> None:
    print(f"{'suite':18}{'version':12}" + "".join(f"{column:>11}" for column in COLUMNS), flush=True)


def print_note(name: str, note: str) -> None:
    print(f"{name:18}{note}", flush=True)


def print_comparison(environment: Environment, comparison: Comparison) -> None:
    asyncio, whorl = comparison.asyncio, comparison.whorl
    numbers = (
        len(asyncio.outcomes),
        len(asyncio.with_outcome("passed")),
        len(whorl.with_outcome("passed")),
        whorl.on("whorl"),
        len(comparison.failed_on_both),
        len(comparison.only_on_whorl),
        len(comparison.flaky),
        f"{asyncio.seconds:.0f}/{whorl.seconds:.0f}",
    )
    name = f"{environment.suite.name:18}{environment.version:12}"
    print(name + "".join(f"{number:>11}" for number in numbers), flush=True)
    _print_tests("on Whorl only", comparison.only_on_whorl)
    _print_tests("passes when run again", comparison.flaky)
    _print_differences(environment.suite, comparison)
    for complaint in (*asyncio.complaints, *whorl.complaints):
        print(f"    {complaint}")
    if not whorl.outcomes:
        print("    no test was collected")
    elif not whorl.on("whorl"):
        print("    no test ran a turn of Whorl's loop")


def _print_differences(suite: Suite, comparison: Comparison) -> None:
    if suite.as_uvloop:
        print("    compared with uvloop, whose place Whorl takes")
    if listed := comparison.differences - comparison.outdated:
        print(f"    {len(listed)} fail as listed")
    for test in sorted(comparison.outdated):
        print(f"    listed as a difference, and passes or is missing: {test}")


def _print_tests(title: str, tests: dict[str, str]) -> None:
    for test, reason in tests.items():
        print(f"    {title}: {test}")
        errors = [line for line in reason.splitlines() if line.startswith(("---", "E  ", ">  "))]
        print("\n".join(f"        | {line}" for line in (errors or reason.splitlines())[-MAX_LINES:]))


def save(path: Path, run: Run) -> None:
    path.write_text(json.dumps(dataclasses.asdict(run), indent=1))


def load(path: Path) -> Run:
    known = json.loads(path.read_text())
    known["outcomes"] = {test: Outcome(**one) for test, one in known["outcomes"].items()}
    return Run(**known)
