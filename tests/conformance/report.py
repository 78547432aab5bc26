"""Prints the outcome of the suite: a line per module, then all results that need a look."""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from runs import ModuleRun, Outcome

COLUMNS = ("run", "passed", "on {}", "failed", "as asyncio", "absent", "skipped", "by CPython")


@dataclass(frozen=True)
class ModuleReport:
    """One module's outcomes, its failures held against stock asyncio's."""

    run: ModuleRun
    fails_on_asyncio: set[str]

    @property
    def counted(self) -> list[Outcome]:
        """The tests that passed and in which a Whorl loop ran a turn."""
        return [outcome for outcome in self.run.with_outcome("passed") if outcome.turns]

    @property
    def failures(self) -> list[Outcome]:
        """The failures that stock asyncio does not have."""
        return [one for one in self.run.with_outcome("failed") if one.id not in self.fails_on_asyncio]

    @property
    def shared_failures(self) -> list[Outcome]:
        return [one for one in self.run.with_outcome("failed") if one.id in self.fails_on_asyncio]

    @property
    def elsewhere(self) -> list[Outcome]:
        """The tests that passed on a loop of asyncio's own, where the replacement did not reach."""
        return [one for one in self.run.with_outcome("passed") if one.stock_turns and not one.turns]

    def numbers(self) -> tuple[int, ...]:
        return (
            len(self.run.run),
            len(self.run.with_outcome("passed")),
            len(self.counted),
            len(self.failures),
            len(self.shared_failures),
            len(self.run.with_outcome("absent")),
            len(self.run.with_outcome("skipped")),
            len(self.run.with_outcome("skipped by CPython")),
        )


def print_heading(loop: str) -> None:
    print(f"{'module':26}" + "".join(f"{column.format(loop):>12}" for column in COLUMNS))


def print_line(name: str, numbers: Iterable[int], note: str = "") -> None:
    print(f"{name:26}" + "".join(f"{number:12}" for number in numbers) + note, flush=True)


def print_summary(loop: str, reports: list[ModuleReport], *, verbose: bool) -> None:
    totals = [sum(column) for column in zip(*(report.numbers() for report in reports), strict=True)]
    print_line("all", totals)
    run, passed, counted, *_ = totals
    print(f"\n{passed} of {run} tests passed; {counted} had a loop of {loop} run a turn and count as passed.")
    _print_skips(reports)
    _print_absent(reports)
    _print_outcomes("Fail on stock asyncio too", _gather(reports, "shared_failures"))
    if verbose:
        _print_outcomes("Passed on asyncio's own loop", _gather(reports, "elsewhere"))
    for report in reports:
        for complaint in report.run.complaints:
            print(f"\n{complaint}")
    _print_outcomes(f"Fail on {loop} only", _gather(reports, "failures"), reasons=verbose)


def _gather(reports: list[ModuleReport], kind: str) -> list[Outcome]:
    return [outcome for report in reports for outcome in getattr(report, kind)]


def _print_skips(reports: list[ModuleReport]) -> None:
    names = Counter(one.reason for report in reports for one in report.run.with_outcome("skipped"))
    if names:
        print(f"\nSkipped, because the test sets or mocks a private name ({names.total()}):")
        for name, count in sorted(names.items()):
            print(f"  {name} ({count})")


def _print_absent(reports: list[ModuleReport]) -> None:
    methods = Counter(one.reason for report in reports for one in report.run.with_outcome("absent"))
    if methods:
        print(f"\nNeed a method that the loop does not have yet ({methods.total()}):")
        for method, count in sorted(methods.items()):
            print(f"  {method} ({count})")


def _print_outcomes(title: str, outcomes: list[Outcome], *, reasons: bool = False) -> None:
    if outcomes:
        print(f"\n{title} ({len(outcomes)}):")
    for outcome in outcomes:
        last_line = outcome.reason.strip().rpartition("\n")[2]
        print(f"  {outcome.id}" + (f"  {last_line[:120]}" if last_line else ""))
        if reasons:
            print("".join(f"    {line}\n" for line in outcome.reason.splitlines()))


def write_json(path: Path, facts: dict[str, str], reports: list[ModuleReport]) -> None:
    modules = {
        report.run.module: {
            "outcomes": [dataclasses.asdict(outcome) for outcome in report.run.outcomes.values()],
            "fails_on_asyncio": sorted(report.fails_on_asyncio),
            "complaints": report.run.complaints,
        }
        for report in reports
    }
    path.write_text(json.dumps(facts | {"modules": modules}, indent=1))
