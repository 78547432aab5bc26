"""The commands that read a recording: `whorl dump`, `whorl trace`, `whorl report`."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from whorl.core.recording import layout
from whorl.inspector.asking import finding
from whorl.inspector.asking.commands import PID, reporting
from whorl.inspector.recordings.output import written
from whorl.inspector.recordings.recording import Recording, read_file

#: How many of the last seconds of a living process a trace has.
SECONDS_OF_PROCESS = 10.0
MANY_EVENTS = 500_000
STATES = {
    "running": "it is running",
    "stopped": "it is stopped",
    "died": "it died and left this recording",
    "finished": "it has ended",
}


def _read(target: str) -> tuple[Recording, str, str]:
    """Return the recording of a process or a file, the state in words, and the beginning of a file's name.

    Raises Failed, NotARecording, OSError and click.UsageError.
    """
    if target.isdecimal():
        found = finding.recording_of(int(target))
        return found.recording, STATES[found.state], f"whorl-{target}"
    if not is_recording(target):
        raise click.UsageError(f"{target} is neither the number of a process nor a recording")
    recording = read_file(target)
    state = "it has ended" if recording.state == layout.FINISHED else ""
    return recording, state, os.path.basename(target).removesuffix(".recording")


def _announce(recording: Recording) -> None:
    """Say that a recording is long, to somebody who looks on."""
    events = recording.events_written - recording.first_event
    if events >= MANY_EVENTS and sys.stderr.isatty():
        click.echo(f"{events:,} events: this may take a minute. --seconds takes the last ones only", err=True)


def is_recording(path: str) -> bool:
    """Return whether a file begins as a recording does."""
    try:
        with open(path, "rb") as file:
            return file.read(len(layout.MAGIC)) == layout.MAGIC
    except OSError:
        return False


def _opened(path: str) -> Any:
    """Open a file for writing, which takes its place when it is whole; `-` is the standard output."""
    return click.open_file(path, "wb") if path == "-" else written(path)


@click.command()
@PID
@click.option("-o", "--output", metavar="FILE", help="The file; by default whorl-PID.recording.")
@reporting
def dump(pid: int, output: str | None) -> None:
    """Save what a process has recorded: its last events, its figures, its stalls.

    The process is not asked, so this works while it is stuck, stopped or dead. `whorl trace` and
    `whorl report` read the file.
    """
    found = finding.recording_of(pid)
    path = output or f"whorl-{pid}.recording"
    with _opened(path) as file:
        file.write(found.recording.to_bytes())
    events = found.recording.events_written - found.recording.first_event
    click.echo(f"{path}: {events:,} events of process {pid}; {STATES[found.state]}", err=True)


@click.command()
@click.argument("target", metavar="FILE | PID")
@click.option("-o", "--output", metavar="FILE", help="The page; by default it is named after the recording.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Only what happened last.")
@reporting
def report(target: str, output: str | None, seconds: float | None) -> None:
    """Make a page of a recording: what blocked the loop, where the time went.

    It is one file of HTML that needs no network.
    """
    from whorl.inspector.recordings import page

    recording, state, name = _read(target)
    path = output or f"{name}.html"
    _announce(recording)
    text = page.page(recording, state=state, seconds=seconds)
    with _opened(path) as file:
        file.write(text.encode())
    if path != "-":
        click.echo(f"{path}: open it in a browser", err=True)


class _Trace(click.Command):
    """A command whose options end at a program's name: the rest is the program's."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, also options behind a process or a file."""
        context.allow_interspersed_args = False
        context.ignore_unknown_options = True
        target = self.make_parser(context).parse_args(args=list(args))[0].get("target")
        if isinstance(target, str) and (target.isdecimal() or is_recording(target)):
            context.allow_interspersed_args = True
            context.ignore_unknown_options = False
        return super().parse_args(context, args)


@click.command(cls=_Trace)
@click.option("-o", "--output", metavar="FILE", help="The trace; it is compressed if the name ends in .gz.")
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    help="Only what happened last; of a process, by default 10.",
)
@click.option("--all", "record_all", is_flag=True, help="Of a program: record short callbacks, too.")
@click.argument("target", metavar="PROGRAM | FILE | PID")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@reporting
def trace(
    output: str | None, seconds: float | None, record_all: bool, target: str, arguments: tuple[str, ...]
) -> None:
    """Make a trace for Perfetto, Chrome or speedscope.

    A number is that of a process, of which the last seconds are shown. A program is run, as by `whorl run`.
    Its trace is written when it has ended, in whatever way; the exit code is the program's.
    """
    if not target.isdecimal() and not is_recording(target):
        _trace_program(output, seconds, record_all, target, arguments)
    if arguments:
        raise click.UsageError(f"only a program has arguments: {' '.join(arguments)}")
    if record_all:
        raise click.UsageError("--all is for a program; what is recorded already stays as it is")
    recording, _, name = _read(target)
    if target.isdecimal() and seconds is None:
        seconds = SECONDS_OF_PROCESS
    _write_trace(recording, output or f"{name}.json.gz", seconds)


def _trace_program(
    output: str | None, seconds: float | None, record_all: bool, program: str, arguments: tuple[str, ...]
) -> None:
    """Run a program, write its trace, and exit as it did."""
    from whorl.inspector.asking import traced_run

    if not os.path.exists(program) and ":" not in program:
        raise click.UsageError(f"{program} is no process, no recording and no program")
    name = os.path.basename(program).partition(":")[0].removesuffix(".py")
    recording, code = traced_run.run(program, arguments, record_all=record_all)
    if recording is None:
        click.echo("whorl: nothing was recorded: no loop of Whorl's has run", err=True)
    else:
        _write_trace(recording, output or f"{name}.json.gz", seconds)
    sys.exit(code)


def _write_trace(recording: Recording, path: str, seconds: float | None) -> None:
    from whorl.inspector.recordings import trace as trace_

    _announce(recording)
    with _opened(path) as file:
        events = trace_.write(recording, file, compressed=path.endswith(".gz"), seconds=seconds)
    if path != "-":
        click.echo(f"{path}: {events:,} events; https://ui.perfetto.dev opens it, or speedscope", err=True)
