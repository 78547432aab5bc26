"""Many runs of one program: what is found in any of them, and the smallest run that shows it."""

from __future__ import annotations

import ast
import gc
import inspect
import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import Any, Unpack

from whorl.sim.chance.decisions import Place
from whorl.sim.chance.strategies import Delay
from whorl.sim.chance.tape import Tape
from whorl.sim.running.batches import Outcome, outcomes
from whorl.sim.running.report import Report, program_of
from whorl.sim.running.result import Result
from whorl.sim.running.run import Main, run_with
from whorl.sim.running.shrink import Failure, shrink
from whorl.sim.world.options import RunKeywords, RunOptions
from whorl.sim.world.world import Finding

_real_clock = time.perf_counter  # bound before any world replaces it


def check(
    main: Main[Any],
    *,
    seeds: int | Iterable[int] = 200,
    first: int = 0,
    jobs: int = 1,
    budget_s: float | None = None,
    stop_after: int = 1,
    shrink_s: float = 30.0,
    verify: bool = True,
    **options: Unpack[RunKeywords],
) -> Report:
    """Run a program with many seeds; return what went wrong in any of them.

    `seeds` is their number, from seed `first` on, or the seeds themselves. `jobs` processes share them. It
    ends early after `budget_s` real seconds, or when `stop_after` seeds have failed. Errors that no code
    handled do not end it, since asyncio would log them and go on. The first failure is shrunk for at most
    `shrink_s` seconds. With `verify`, one seed in 50 is run twice: both runs have to be the same. A
    `strategy` says how seeds pick orders; `Delay` has no seeds, but tries all orders. Other options are those
    of `run`, but for a trace, which is of one run and raises ValueError here.
    """
    wanted = replace(RunOptions(**options), keeps_log=True)
    if wanted.trace is not None:
        raise ValueError("a trace is of one run: give it to `run` or `replay`")
    if stop_after < 1 or jobs < 1:
        raise ValueError("stop_after and jobs have to be 1 or more")
    report = Report(main)
    began = _real_clock()
    ends = None if budget_s is None else began + budget_s
    if isinstance(wanted.strategy, Delay):
        _enumerate(report, wanted.strategy, stop_after, ends, replace(wanted, strategy=None))
    else:
        chosen = list(range(first, first + seeds) if isinstance(seeds, int) else seeds)
        if chosen and chosen == list(range(chosen[0], chosen[-1] + 1)):
            report.first_seed = chosen[0]
        _run_all(report, chosen, jobs, stop_after, ends, verify, wanted)
    report.elapsed_s = _real_clock() - began
    report.never_reached = sorted(named_places(main) - set(report.reached)) if report.seeds else []
    if shrink_s > 0 and report.failures and _can_shrink(report.failures[0]):
        report.shrunk = shrink(main, report.failures[0], budget_s=shrink_s)
    gc.collect()
    return report


def _can_shrink(failure: Failure) -> bool:
    """Return whether a failure can be run again and again: not if it ends the process, or takes too long."""
    return failure.finding.kind not in ("died", "outofrealtime")


def _run_all(
    report: Report,
    seeds: list[int],
    jobs: int,
    stop_after: int,
    ends: float | None,
    verifies: bool,
    options: RunOptions,
) -> None:
    """Run all seeds, and note what comes of them."""
    failing = 0
    for outcome in outcomes(report.main, seeds, jobs, verifies, options):
        _count_in(report, outcome)
        if outcome.keys:
            failing += outcome.keys[0][0] != "unhandled"
            _keep_failure(report, outcome, options)
        if report.seeds == len(seeds):
            return
        if failing >= stop_after:
            report.stopped = (
                f"after {failing} failing {'seed' if failing == 1 else 'seeds'} of {len(seeds)} to run"
            )
            return
        if ends is not None and _real_clock() >= ends:
            report.stopped = f"the time was up, after {report.seeds} seeds of {len(seeds)}"
            return


def _count_in(report: Report, outcome: Outcome) -> None:
    report.seeds += 1
    report.verified += outcome.verified
    report.reached.update(outcome.reached)
    report.remarks.update(set(outcome.remarks))
    if outcome.difference is not None:
        report.differences.append(outcome.difference)
    for key, text in zip(outcome.keys, outcome.texts, strict=True):
        report.texts.setdefault(key, text)
    for key in dict.fromkeys(outcome.keys):
        report.found.setdefault(key, []).append(outcome.seed)


def _keep_failure(report: Report, outcome: Outcome, options: RunOptions) -> None:
    """Run a failing seed once more, in this process, and keep its failure if it is the first of its kind."""
    if any(failure.finding.key == outcome.keys[0] for failure in report.failures):
        return
    if outcome.keys[0][0] == "died":
        tape = Tape(outcome.seed, {}, options.faults)
        report.failures.append(Failure(outcome.seed, Finding(*outcome.keys[0]), tape, options))
        return
    result = run_with(report.main, outcome.seed, options)
    if result.findings:
        report.failures.append(Failure.of(result, options))
        report.failures.sort(key=lambda failure: failure.finding.is_unhandled)


def _enumerate(
    report: Report, strategy: Delay, stop_after: int, ends: float | None, options: RunOptions
) -> None:
    """Run all orders within the bound of a strategy."""
    asking = replace(options, asks=True)
    waiting: list[dict[Place, int]] = [strategy.first()]
    for number in count():
        if not waiting:
            report.schedules = number
            return
        if ends is not None and _real_clock() >= ends:
            report.stopped = f"the time was up, after {number} schedules"
            return
        decided = waiting.pop()
        result: Result[Any] = run_with(report.main, Tape(0, decided, options.faults), asking)
        report.seeds += 1
        report.reached.update(result.reached)
        report.remarks.update(set(result.remarks))
        if result.findings:
            failure = Failure.of(result, options)
            report.found.setdefault(failure.finding.key, []).append(number)
            report.texts.setdefault(failure.finding.key, str(failure.finding))
            report.failures.append(replace(failure, seed=number))
            if len(report.failures) >= stop_after:
                report.stopped = "after a failing schedule"
                return
        waiting += reversed(strategy.following(decided, result.asked))


def named_places(main: Main[Any]) -> set[str]:
    """Return the names that the file of a program gives to `reached`."""
    function = program_of(main)
    try:
        tree = ast.parse(inspect.getsource(inspect.getmodule(function) or function))
    except (OSError, TypeError, SyntaxError):
        return set()
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called == "reached" and isinstance(node.args[0].value, str):
                names.add(node.args[0].value)
    return names
