"""The commands of the simulator: `whorl sim run`, `replay`, `shrink`, `soak`, `trace`, `diff`, `limits`."""

from __future__ import annotations

import functools
import json
import os
import pdb  # noqa: T100
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from whorl.sim import errors
from whorl.sim.chance.faults import PROFILES, Cpu
from whorl.sim.chance.strategies import Delay, Edge, Pct, Random
from whorl.sim.chance.tape import HASH_SEED, Tape, tape_of
from whorl.sim.running import trace as traces
from whorl.sim.running.check import check
from whorl.sim.running.chrome import write as write_chrome
from whorl.sim.running.report import FINDING, LIMITS, NO_FINDING, NOT_DETERMINISTIC, Report
from whorl.sim.running.run import run as run_once
from whorl.sim.running.run import run_with
from whorl.sim.running.shrink import Failure
from whorl.sim.running.shrink import shrink as shrink_failure
from whorl.sim.running.target import NotATarget, Target, targets_of
from whorl.sim.running.testing import run_options
from whorl.sim.world.options import ALLOWANCES, TASKS

STRATEGIES: dict[str, Any] = {"random": Random(), "pct": Pct(), "edge": Edge(), "delay": Delay()}

INTERRUPTED = 130  # the code that shells report for a program that Ctrl-C ended: 128 + SIGINT

#: How many seeds a batch of `soak` has, and how much longer than its time a batch may take.
SOAK_BATCH = 2000

POSITIVE = click.FloatRange(0, min_open=True)

#: The options of all commands that run a program, and of those that do so in their own process.
LIMITING = (
    click.option("--faults", type=click.Choice(list(PROFILES)), help="How often things go wrong."),
    click.option(
        "--allow",
        multiple=True,
        type=click.Choice(sorted(ALLOWANCES)),
        help="What is no failure; repeatable.",
    ),
    click.option(
        "--stall",
        "stall_s",
        type=POSITIVE,
        help="The longest wait of a task of the main host that is no failure, in virtual seconds.",
    ),
    click.option("--limit", "limit_s", type=POSITIVE, help="The most virtual seconds of a run; 7200."),
    click.option("--turns", type=click.IntRange(1), help="The most turns of a run; 1,000,000."),
    click.option("--real", "real_s", type=POSITIVE, help="The most real seconds of a run; 60."),
)
RUNNING = (
    *LIMITING,
    click.option(
        "--cpu", type=click.FloatRange(0, 1), help="In how many turns code takes time; 0: it takes none."
    ),
    click.option("--tasks", type=click.Choice(TASKS), help="Whose tasks the loops make."),
)
STRATEGY = click.option("--strategy", type=click.Choice(list(STRATEGIES)), help="How seeds pick orders.")
PROGRAM = click.argument("program", metavar="FILE.py[::NAME]")
TAPE = click.argument("tape", metavar="TAPE_OR_SEED")


@click.group()
def sim() -> None:
    """Run programs in simulated worlds, from seeds.

    Exit codes: 0 without a finding, 1 with one, 2 for wrong arguments, 3 for runs that are not deterministic.
    """


def _usage(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command end with exit code 2 for what is no program, no tape or no trace; and as Ctrl-C asks."""

    @functools.wraps(command)
    def checked(*args: Any, **options: Any) -> None:
        try:
            command(*args, **options)
        except (NotATarget, ValueError, FileNotFoundError) as error:
            raise click.UsageError(str(error)) from None
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            sys.exit(INTERRUPTED)

    return checked


def _with(options: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """Return a decorator that gives a command several options."""
    return lambda command: functools.reduce(lambda made, option: option(made), reversed(options), command)


def _with_hash_seed(number: int) -> None:
    """Go on in a process with the hashes of a number, which fix the order of sets of texts."""
    number %= 1 << 32
    if HASH_SEED != number:
        environment = {**os.environ, "PYTHONHASHSEED": str(number)}
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def _options(target: Target, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a program's own options, with those of the command line in their place."""
    options = dict(target.options)
    names = ("faults", "allow", "tasks", *LIMITS)
    options |= {name: given[name] for name in names if given.get(name)}
    if given.get("cpu") is not None:
        options["cpu"] = Cpu(rate=given["cpu"])
    if given.get("strategy"):
        options["strategy"] = STRATEGIES[given["strategy"]]
    return options


@sim.command()
@PROGRAM
@click.option("--seeds", type=click.IntRange(1), help="Number of seeds; 200, or as the test says.")
@click.option(
    "--first", "--from", "first", type=click.IntRange(0), help="The first seed; 0, or as the test says."
)
@click.option("--jobs", type=click.IntRange(1), help="Number of worker processes.")
@_with(RUNNING)
@STRATEGY
@click.option("--seconds", type=float, help="Stop after so many real seconds.")
@click.option("--stop-after", type=click.IntRange(1), help="Stop after so many failing seeds; 1.")
@click.option(
    "--shrink", "shrink_s", type=float, help="Make the first failure small for so many seconds; 30."
)
@click.option(
    "--trace", "folder", type=click.Path(path_type=Path), help="Write failures' tapes and traces there."
)
@click.option(
    "--hash-seed", "hashes", type=int, hidden=True, help="The hashes of the process; the first seed."
)
@click.option(
    "--summary", type=click.Path(path_type=Path), hidden=True, help="Write figures for programs there."
)
@_usage
def run(
    program: str,
    seeds: int | None,
    first: int | None,
    folder: Path | None,
    summary: Path | None,
    seconds: float | None,
    hashes: int | None,
    **given: Any,
) -> None:
    """Run a program with many seeds.

    The program is a coroutine function, or a test of sim.test. Without a name it is `main`, or all tests.
    """
    _with_hash_seed((first or 0) if hashes is None else hashes)
    code = NO_FINDING
    for target in _targets(program):
        options = {"shrink_s": 30.0, "jobs": 1, **_options(target, given)}
        options |= {
            name: given[name] for name in ("jobs", "stop_after", "shrink_s") if given[name] is not None
        }
        options["jobs"] = options["jobs"] or 1
        options["seeds"] = seeds or options.get("seeds", 200)
        if first is not None:
            options["first"] = first
        if seconds is not None:
            options["budget_s"] = seconds
        report = check(target.main, **options)
        click.echo(f"{target.name}: {report}")
        if folder is not None:
            _keep(report, target, folder)
        if summary is not None:
            found = [[*key, report.found[key][0]] for key in report.found]
            figures = {"seeds": report.seeds, "found": found, "deterministic": not report.differences}
            summary.write_text(json.dumps(figures), encoding="utf-8")
        code = _worse(code, report.exit_code)
    sys.exit(code)


def _worse(code: int, other: int) -> int:
    """Return the exit code for two results: a finding comes before a run that is not deterministic."""
    return FINDING if FINDING in (code, other) else max(code, other)


def _keep(report: Report, target: Target, folder: Path) -> None:
    """Write the tape and the trace of the first failure."""
    failure = report.first
    if failure is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"{target.name.rpartition('::')[2]}-{report.failures[0].seed}"
    failure.tape.write(place.with_suffix(".tape"), program=target.name, python=sys.version.split()[0])
    run_with(target.main, failure.tape, replace(failure.options, trace=place.with_suffix(".trace")))
    click.echo(f"Written: {place.with_suffix('.tape')}, {place.with_suffix('.trace')}")


def _targets(program: str) -> list[Target]:
    """Return the programs that a text names; their `sys.argv` is what Python would give them."""
    sys.argv = [program.partition("::")[0]]
    return targets_of(program)


def _one(program: str) -> Target:
    targets = _targets(program)
    if len(targets) > 1:
        raise NotATarget(f"{program} has several tests; name one: {', '.join(each.name for each in targets)}")
    return targets[0]


def _open(text: str) -> Tape | int:
    """Return a tape or a seed, in a process with its hashes."""
    tape = tape_of(text)
    if isinstance(tape, Tape):
        if tape.hash_seed is not None:
            _with_hash_seed(tape.hash_seed)
    elif HASH_SEED is None:
        _with_hash_seed(tape)
    return tape


@sim.command()
@TAPE
@PROGRAM
@_with(RUNNING)
@STRATEGY
@click.option("--trace", "path", type=click.Path(path_type=Path), help="Write the trace of the run there.")
@click.option("--pdb", "debugs", is_flag=True, help="Look at the exception of the finding in the debugger.")
@_usage
def replay(tape: str, program: str, path: Path | None, debugs: bool, **given: Any) -> None:
    """Run a program again, from a seed, a tape or the word for a tape in a report."""
    opened = _open(tape)
    target = _one(program)
    options = run_options(_options(target, given))
    result = run_once(target.main, seed=opened, trace=path, **options)
    expected = opened.digest if isinstance(opened, Tape) else ""
    if result.failed:
        click.echo(str(Report.of(target.main, Failure.of(result, options))))
    else:
        click.echo(f"No finding; {result.elapsed_s:.6f} virtual seconds, {result.turns} turns.")
    click.echo(f"Digest: {result.digest}")
    if debugs and result.failed and (exception := result.findings[0].exception) is not None:
        pdb.post_mortem(exception.__traceback__)
    if expected and expected != result.digest:
        click.echo(f"whorl: this is another run than that of the tape, whose digest is {expected}", err=True)
        sys.exit(NOT_DETERMINISTIC)
    sys.exit(FINDING if result.failed else NO_FINDING)


@sim.command()
@TAPE
@PROGRAM
@_with(RUNNING)
@click.option("--seconds", type=float, default=30.0, help="The most real seconds that it takes; 30.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the tape there.")
@_usage
def shrink(tape: str, program: str, seconds: float, out: Path | None, **given: Any) -> None:
    """Make a failing run small: as few decisions as possible, and small ones."""
    opened = _open(tape)
    target = _one(program)
    options = run_options(_options(target, given))
    result = run_once(target.main, seed=opened, **options)
    if not result.failed:
        click.echo("The run has no finding.")
        return
    failure = Failure.of(result, {**options, "faults": result.tape.faults})
    report = Report.of(target.main, failure)
    report.shrunk = shrink_failure(target.main, failure, budget_s=seconds)
    click.echo(str(report))
    if out is not None:
        report.shrunk.tape.write(out, program=target.name, python=sys.version.split()[0])
    sys.exit(FINDING)


@sim.command(name="trace")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--host", help="Only calls of this host.")
@click.option("--task", help="Only calls that this task made.")
@click.option("--fd", type=int, help="Only calls about this descriptor.")
@click.option("--from", "since_s", type=float, default=0.0, help="Only calls from this virtual second on.")
@click.option(
    "--chrome", type=click.Path(path_type=Path), help="Write it for Perfetto, Chrome or speedscope instead."
)
@_usage
def show_trace(
    file: Path, host: str | None, task: str | None, fd: int | None, since_s: float, chrome: Path | None
) -> None:
    """Print a trace: what the loops asked of their kernels, by virtual time."""
    head, calls, packets, story = traces.read_trace(file)
    calls = [call for call in calls if traces.is_about(call, host, task, fd, since_s)]
    if chrome is not None:
        chosen = [packet for packet in packets if traces.carries(packet, host, task, fd, since_s)]
        write_chrome(chrome, head, calls, chosen)
        return
    click.echo(f"Seed {head['seed']}, {head['turns']} turns, digest {head['digest']}")
    for text in (*head["findings"], *head["decisions"], *story):
        click.echo(f"  {text.strip()}")
    for call in calls:
        click.echo(traces.as_text(call))


@sim.command()
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@_usage
def diff(first: Path, second: Path) -> None:
    """Print where two traces part. The exit code is 1 if they do."""
    one, other = traces.read_trace(first).calls, traces.read_trace(second).calls
    parting = traces.parting(one, other)
    if parting is None:
        click.echo(f"The traces are the same: {len(one)} calls.")
        return
    number, call, instead = parting
    click.echo(f"The traces part at call {number}.")
    for before in one[max(0, number - 5) : number]:
        click.echo(f"  both    {traces.as_text(before)}")
    click.echo(f"  first   {traces.as_text(call)}")
    click.echo(f"  second  {traces.as_text(instead)}")
    sys.exit(FINDING)


@sim.command()
def limits() -> None:
    """Print what a simulated world refuses, and what to do."""
    known = [each for each in vars(errors).values() if isinstance(each, type)]
    refused = [
        each for each in known if issubclass(each, errors.Unsimulated) and each is not errors.Unsimulated
    ]
    width = max(len(each.__name__) for each in refused)
    for each in refused:
        click.echo(f"{each.__name__:{width}}  {each.__doc__}")
        click.echo(f"{'':{width}}  {each.advice}")


@sim.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("program", metavar="FILE.py[::NAME]", required=False)
@click.option("--seconds", type=float, required=True, help="How long, in real seconds.")
@click.option("--jobs", type=click.IntRange(1), default=1, help="Number of worker processes.")
@click.option("--batch", type=click.IntRange(1), default=SOAK_BATCH, hidden=True, help="Seeds of a batch.")
@_with(LIMITING)
@_usage
def soak(folder: Path, program: str | None, seconds: float, jobs: int, batch: int, **given: Any) -> None:
    """Run a program for a long time; go on with the next seed where the last soak in DIR has ended.

    Each batch of seeds has a process with other hashes. DIR gets a text, a tape and a trace for each kind of
    finding. Without a program it is the one of the last soak.
    """
    state_file = folder / "soak.json"
    state: dict[str, Any] = {
        "program": None,
        "next": 0,
        "found": [],
        "faults": None,
        "allow": [],
        **dict.fromkeys(LIMITS),
    }
    if state_file.exists():
        state |= json.loads(state_file.read_text(encoding="utf-8"))
    given["program"] = program
    state |= {name: value for name, value in given.items() if value}
    if state["program"] is None:
        raise click.UsageError("name a program: nothing has run in this folder yet")
    _targets(state["program"])
    folder.mkdir(parents=True, exist_ok=True)
    began, first = time.monotonic(), state["next"]
    code = NO_FINDING
    while (rest := seconds - (time.monotonic() - began)) > 0:
        code = _worse(code, _soak_batch(folder, state, rest, jobs, batch))
        state_file.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
    click.echo(f"Seeds {first} to {state['next'] - 1}; kinds of findings so far: {len(state['found'])}")
    for text in state["found"]:
        click.echo(f"  {': '.join(text)}")
    sys.exit(code)


def _soak_batch(folder: Path, state: dict[str, Any], rest: float, jobs: int, batch: int) -> int:
    """Run one batch in a process of its own, and the first seed of each new kind of finding once more."""
    first, summary = state["next"], folder / "batch.json"
    summary.unlink(missing_ok=True)
    command = [sys.executable, "-m", "whorl", "sim", "run", state["program"]]
    if state["faults"]:
        command += ["--faults", state["faults"]]
    command += [f"--allow={name}" for name in state["allow"]]
    command += [f"{option}={state[name]}" for name, option in LIMITS.items() if state[name]]
    many = ["--from", str(first), "--seeds", str(batch), "--stop-after", str(batch), "--jobs", str(jobs)]
    many += ["--seconds", str(rest), "--shrink", "0", "--summary", str(summary)]
    done = subprocess.run([*command, *many], capture_output=True, text=True, check=False)
    if not summary.exists():
        raise click.ClickException(f"a batch failed:\n{done.stderr or done.stdout}")
    figures = json.loads(summary.read_text(encoding="utf-8"))
    summary.unlink()
    state["next"] += max(1, figures["seeds"])
    for *kind, seed in figures["found"]:
        if kind not in state["found"]:
            state["found"].append(kind)
            one = ["--from", str(seed), "--seeds", "1", "--hash-seed", str(first), "--trace", str(folder)]
            again = subprocess.run([*command, *one], capture_output=True, text=True, check=False)
            _write_report(folder / f"finding-{seed}.txt", again.stdout)
    if not figures["deterministic"] and not state.get("differs"):
        state["differs"] = True
        _write_report(folder / f"differs-{first}.txt", done.stdout)
    return done.returncode


def _write_report(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    click.echo(text)
