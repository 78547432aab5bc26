"""Reports: the findings of many runs, for people."""

from __future__ import annotations

import inspect
import os
import shlex
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whorl.formats.units import count
from whorl.sim.running.explain import in_words
from whorl.sim.running.result import SimulationFailed
from whorl.sim.running.shrink import Failure
from whorl.sim.running.verify import Difference

#: How many lines of a story, of a log and of decisions a report shows; the longest tape in a command.
STORY_LINES = 20
LOG_LINES = 20
DECISION_LINES = 20
LONGEST_WORD = 2000

#: The options of a run that end it, and what they are called in commands.
LIMITS = {"stall_s": "--stall", "limit_s": "--limit", "turns": "--turns", "real_s": "--real"}
_NAMED = {**LIMITS, "tasks": "--tasks"}

NO_FINDING, FINDING, USAGE, NOT_DETERMINISTIC = range(4)


@dataclass
class Report:
    """The findings of `check`."""

    main: Any = field(repr=False)
    seeds: int = 0  #: how many were run
    first_seed: int | None = None  #: the first of them, if the others follow it one by one
    elapsed_s: float = 0.0  #: real seconds
    found: dict[tuple[str, str], list[int]] = field(default_factory=dict)  #: findings by key: their seeds
    texts: dict[tuple[str, str], str] = field(default_factory=dict)  #: the first finding of each key
    failures: list[Failure] = field(default_factory=list)  #: one for each key, in the order of seeds
    shrunk: Failure | None = None  #: the first failure, with as few decisions as possible
    differences: list[Difference] = field(default_factory=list)  #: seeds that two runs of differ
    verified: int = 0  #: how many seeds were run twice
    reached: Counter[str] = field(default_factory=Counter)
    never_reached: list[str] = field(
        default_factory=list
    )  #: names in the program's file that no seed reached
    remarks: Counter[str] = field(default_factory=Counter)
    schedules: int | None = None  #: of `Delay`: how many there are, if all were run
    stopped: str = ""  #: why not all seeds were run; empty: they were
    command: str = ""  #: what replays the first failure, if a front end knows better than the report

    @staticmethod
    def of(main: Any, failure: Failure) -> Report:
        """Return the report of one `failure` of `main`."""
        key, finding = failure.finding.key, failure.finding
        return Report(main, 1, found={key: [failure.seed]}, texts={key: str(finding)}, failures=[failure])

    @property
    def failed(self) -> bool:
        """The answer to whether something went wrong in any run."""
        return bool(self.found or self.differences)

    @property
    def exit_code(self) -> int:
        """0 without a finding, 1 with one, 3 if runs are not deterministic."""
        if self.found:
            return FINDING
        return NOT_DETERMINISTIC if self.differences else NO_FINDING

    def check(self) -> None:
        """Raise SimulationFailed if something went wrong."""
        __tracebackhide__ = True
        if self.failed:
            first = self.first
            raise SimulationFailed(str(self)) from (first.finding.exception if first is not None else None)

    @property
    def first(self) -> Failure | None:
        """The first failure, shrunk if it was."""
        return self.shrunk or (self.failures[0] if self.failures else None)

    @property
    def replay_command(self) -> str:
        """The command that replays the first failure; empty without one."""
        first = self.first
        if first is None:
            return ""
        word, faults = first.tape.token(), ""
        if len(word) > LONGEST_WORD or first.finding.kind == "died":
            word = str(self.failures[0].seed)
            faults = first.tape.faults if isinstance(first.tape.faults, str) else ""
        if self.command:
            return self.command.format(tape=shlex.quote(word))
        target = target_of(self.main)
        changed = first.options.changed()
        allow, cpu = sorted(changed.pop("allow", ())), first.options.cpu
        if target is None or "net" in changed or (cpu is not None and cpu.model is not None):
            shown: dict[str, Any] = {"faults": faults, "allow": allow}
            shown |= {name: changed.get(name) for name in _NAMED}
            given = [f"{name}={value!r}" for name, value in shown.items() if value]
            given += [f"{name}={changed[name]!r}" for name in ("cpu", "net") if name in changed]
            return f"sim.replay({', '.join(['main', repr(word), *given])})"
        given = [f" --faults {faults}"] * bool(faults) + [f" --allow {name}" for name in allow]
        given += [f" {option} {changed[name]}" for name, option in _NAMED.items() if name in changed]
        if "cpu" in changed:
            given.append(f" --cpu {cpu.rate if cpu is not None else 0.0}")
        return f"whorl sim replay {shlex.quote(word)} {shlex.quote(target)}{''.join(given)}"

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def program_of(main: Any) -> Any:
    """Return the function behind a program that is wrapped, or whose arguments are bound."""
    while (inner := getattr(main, "__wrapped__", getattr(main, "func", None))) is not None:
        main = inner
    return main


def target_of(main: Any) -> str | None:
    """Return "file::name" of a function of a module; None for others."""
    function = program_of(main)
    name = getattr(function, "__qualname__", "<")
    try:
        file = inspect.getsourcefile(function)
    except TypeError:
        return None
    if file is None or "<" in name:
        return None
    relative = os.path.relpath(file)
    return f"{file if relative.startswith('..') else relative}::{name}"


def _lines(report: Report) -> list[str]:
    rate = f" in {report.elapsed_s:.1f} s" if report.elapsed_s >= 0.05 else ""
    lines = [f"{count(report.seeds, 'run')}{_from_to(report)}{rate}: {_verdict(report)}"]
    if report.schedules is not None:
        lines.append(f"complete: {count(report.schedules, 'schedule')}")
    elif report.stopped:
        lines.append(f"stopped: {report.stopped}")
    for key, seeds in report.found.items():
        shown = ", ".join(map(str, seeds[:5])) + (", ..." if len(seeds) > 5 else "")
        lines.append(f"  {count(len(seeds), 'seed')} ({shown}): {report.texts[key]}")
    lines += [str(difference) for difference in report.differences]
    if (first := report.first) is not None:
        lines += ["", *_failure_lines(report, first)]
    if report.never_reached:
        lines.append(f"No seed reached: {', '.join(report.never_reached)}")
    if report.reached:
        shown = ", ".join(f"{name} in {seeds}" for name, seeds in sorted(report.reached.items()))
        lines.append(f"Reached, by number of seeds: {shown}")
    for text, runs in report.remarks.most_common(5):
        lines.append(f"Remark, of {count(runs, 'run')}: {text}")
    return lines


def _from_to(report: Report) -> str:
    """Return which seeds were run: the next search may begin after them."""
    first, number = report.first_seed, report.seeds
    if first is None:
        return ""
    return f" of seed {first}" if number == 1 else f" of seeds {first} to {first + number - 1}"


def _verdict(report: Report) -> str:
    if report.found:
        return count(len(report.found), "finding")
    return "not deterministic" if report.differences else "no finding"


def _failure_lines(report: Report, failure: Failure) -> list[str]:
    original = report.failures[0]
    finding = failure.finding
    lines = [f"Seed {original.seed}: {original.finding}"]
    is_always_late = finding.kind == "outoftime" and not failure.tape.decisions
    if failure is not original and not is_always_late:
        before, after = len(original.tape.decisions), len(failure.tape.decisions)
        runs = count(failure.runs, "run")
        lines.append(f"Shrunk from {count(before, 'decision')} to {after} in {runs}: {finding}")
    if finding.exception is not None:
        lines += _traceback(finding.exception)
    words = in_words(failure.tape.decisions, failure.moments)
    if words:
        lines += ["What differs from a calm run:", *(f"  {text}" for text in words[:DECISION_LINES])]
    elif is_always_late:
        lines.append("A calm run does not end in time, either.")
    elif not failure.random_words and not failure.random_calls:
        lines.append("It differs in nothing from a calm run.")
    if len(words) > DECISION_LINES:
        lines.append(f"  and {len(words) - DECISION_LINES} more")
    lines += _random_lines(failure, is_all=not words)
    if failure.story:
        lines.append("The end of its story:")
        lines += [f"  {text}" for text in failure.story[-STORY_LINES:]]
    if failure.log:
        lines.append("The end of its log:")
        lines += [f"  {line}" for text in failure.log[-LOG_LINES:] for line in text.splitlines()[-LOG_LINES:]]
    lines += ["Replay it with:", f"  {report.replay_command}"]
    return lines


def _random_lines(failure: Failure, *, is_all: bool) -> list[str]:
    """Return what a report says about random numbers, which are the seed's and not decisions."""
    drawn = []
    if failure.random_words:
        drawn.append(f"{count(failure.random_words, 'word')} of 32 bits from `random`")
    if failure.random_calls:
        drawn.append(f"{count(failure.random_calls, 'answer')} of os.urandom, uuid and others")
    if not drawn:
        return []
    return [
        f"{'It differs from a calm run only in' if is_all else 'It has'} the random numbers of seed "
        f"{failure.seed}: {' and '.join(drawn)}.",
        "  They do not shrink. What the program takes from world.choose(n, name) does.",
    ]


def _traceback(error: BaseException) -> list[str]:
    """Return the lines of an exception's traceback in the program: without the loop's and the simulator's."""
    own = str(Path(__file__).parents[2]) + os.sep
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(own)
    ]
    lines = [f"  {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in frames[-8:]]
    shown = traceback.format_exception_only(error)[-1].rstrip().splitlines()
    return [*lines, *(f"  {line}" for line in shown[:10])]
