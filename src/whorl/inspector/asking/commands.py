"""The commands about an inspected process: `whorl tasks`, `whorl handles`, `whorl stalls`.

The first two ask it. Stalls are read from its recording, so it need not answer, nor live.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from whorl.formats.cells import columns_of, cut, left, padded
from whorl.formats.units import count, duration_ns, size
from whorl.inspector.asking import client, stuck
from whorl.inspector.recordings.recording import NotARecording
from whorl.inspector.tables import handles as handles_
from whorl.inspector.tables import tasks as tasks_
from whorl.inspector.tables.handles import HandleFigures
from whorl.inspector.tables.tasks import AlikeTasks, TaskFigures, summary, tree_of, wait_text
from whorl.inspector.tables.wording import escaped, shown, starved


def number_of_process(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """Return the number of a process, for an argument of the command line."""
    if value is None:
        return None
    if not (value.isascii() and value.isdecimal()) or not 0 < len(value.lstrip("0")) < 11:
        raise click.BadParameter(f"'{value}' is not the number of a process")
    return int(value)


PID = click.argument("pid", callback=number_of_process)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object.")
#: The narrowest that a column is made, to leave room for the last one.
NARROWEST = 8
#: The widest column where there is no terminal. A longer cell makes only its own line longer.
WIDEST = 80

#: The extras that bring the libraries of a command.
EXTRAS = {"prometheus_client": "prometheus", "rich": "top", "textual": "top"}

Row = TypeVar("Row")


def reporting(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command end with the exit code of what failed."""

    @functools.wraps(command)
    def reported(*args: Any, **options: Any) -> None:
        try:
            command(*args, **options)
        except client.NoAnswer as error:
            click.echo(escaped(f"whorl: {error}{stuck.known_of(options['pid'])}"), err=True)
            sys.exit(error.code)
        except (client.Failed, NotARecording) as error:  # Some of its text may be another process's.
            click.echo(escaped(f"whorl: {error}"), err=True)
            sys.exit(error.code if isinstance(error, client.Failed) else stuck.CUT_OR_NEWER)
        except ImportError as error:
            click.echo(f"whorl: {missing(error)}", err=True)
            sys.exit(1)
        except BrokenPipeError:  # The reader, such as `head`, has seen enough.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except OSError as error:
            click.echo(escaped(f"whorl: {error.filename or 'the output'}: {error.strerror}"), err=True)
            sys.exit(1)

    return reported


def missing(error: ImportError) -> str:
    """Return which library is missing, and how to install it; raise the error if no extra brings it."""
    library = (error.name or "").partition(".")[0]
    if library not in EXTRAS:
        raise error
    return f"this needs {library}: pip install 'whorl-loop[{EXTRAS[library]}]'"


@click.command()
@PID
@click.option("--tree", "as_tree", is_flag=True, help="Each task under the one that waits for it.")
@AS_JSON
@click.option("--waiting-for", type=click.IntRange(0), metavar="FD", help="Only those that wait for it.")
@click.option("--summary", "folded", is_flag=True, help="How many are at the same line, and wait alike.")
@reporting
def tasks(pid: int, as_tree: bool, as_json: bool, waiting_for: int | None, folded: bool) -> None:
    """Show the tasks of a process, and what each waits for.

    The process must be inspected: started with WHORL_INSPECT=1 or `whorl run --inspect`. It answers while its
    loop is stuck, too.
    """
    if as_tree and (as_json or waiting_for is not None):
        raise click.UsageError("--tree goes with no other option")
    if folded:
        if as_tree or waiting_for is not None:
            raise click.UsageError("--summary goes with --json only")
        return _show_folded(pid, as_json)
    with counting("tasks") as told:
        loops = [tasks_.arranged(rows) for rows in client.rows(pid, "tasks", TaskFigures, told)]
    if waiting_for is not None:
        loops = [[row for row in rows if row.waits_for and row.waits_for.fd == waiting_for] for rows in loops]
    _show(pid, as_json, loops, summary, _tree if as_tree else _tasks)


def _tree(found: list[TaskFigures]) -> str:
    return "\n".join(_fitting(line) for line in tree_of(found).split("\n")[2:])


def _tasks(found: list[TaskFigures]) -> str:
    names = ["TASK", "COROUTINE", "AT", "BUSY", "STEPS", "LONGEST", "WAITS FOR"]
    rows = [[row.name, row.coro, _place(row), *_times(row), _wait(row)] for row in found]
    return table(names, rows, last=0.3)


def _show_folded(pid: int, as_json: bool) -> None:
    """Show how many tasks are alike. The process counts them, so that few rows are sent."""
    with counting("groups of tasks") as told:
        loops = client.rows(pid, "folded", AlikeTasks, told)

    def headline(found: list[AlikeTasks]) -> str:
        return f"{count(sum(row.count for row in found), 'task')} in {count(len(found), 'group')}"

    def body(found: list[AlikeTasks]) -> str:
        rows = [[f"{row.count:,}", row.coro, _place(row), row.text or f"({row.state})"] for row in found]
        return table(["COUNT", "COROUTINE", "AT", "ONE WAITS FOR"], rows, last=0.3)

    _show(pid, as_json, loops, headline, body)


def _show(
    pid: int,
    as_json: bool,
    loops: list[list[Row]],
    headline: Callable[[list[Row]], str],
    body: Callable[[list[Row]], str],
) -> None:
    """Show the rows of each loop: a line on all of them, and a table."""
    if as_json:
        click.echo(json.dumps({"pid": pid, "loops": loops}, default=vars))
        return
    texts = []
    for number, found in enumerate(loops):
        which = f", loop {number + 1}" if len(loops) > 1 else ""
        texts += [f"process {pid}{which}: {headline(found)}", *filter(None, [body(found)])]
    click.echo("\n\n".join(texts) or f"process {pid}: no loop has run yet")


@contextlib.contextmanager
def counting(what: str) -> Iterator[Callable[[int], None]]:
    """Give a function that tells how many rows have come, if that takes long and somebody looks on."""
    shown_at = time.monotonic() + 1
    text = ""

    def told(number: int) -> None:
        nonlocal shown_at, text
        now = time.monotonic()
        if now >= shown_at and sys.stderr.isatty():
            shown_at, text = now + 0.2, f"still counting: {number:,} {what}"
            click.echo(f"\r{text}", err=True, nl=False)

    try:
        yield told
    finally:
        if text:
            click.echo(f"\r{' ' * (len(text) + 9)}\r", err=True, nl=False)


def _place(row: TaskFigures | AlikeTasks) -> str:
    return "" if row.where is None else f"{row.where[0].rpartition('/')[2]}:{row.where[1]}"


def _times(row: TaskFigures) -> list[str]:
    if row.busy_ns is None or row.steps is None or row.longest_ns is None:
        return ["", "", ""]
    return [duration_ns(row.busy_ns), f"{row.steps:,}", duration_ns(row.longest_ns)]


def _wait(row: TaskFigures) -> str:
    return f"({row.state})" if row.waits_for is None else wait_text(row)


@click.command()
@PID
@click.option("--all", "with_own", is_flag=True, help="Those that the loop has for itself, too.")
@AS_JSON
@reporting
def handles(pid: int, with_own: bool, as_json: bool) -> None:
    """Show the handles of a process: connections, servers, pipes, watched descriptors."""
    with counting("handles") as told:
        loops = [handles_.arranged(rows) for rows in client.rows(pid, "handles", HandleFigures, told)]

    def chosen(rows: list[HandleFigures]) -> list[HandleFigures]:
        return [row for row in rows if with_own or not handles_.is_of_loop(row)]

    def headline(rows: list[HandleFigures]) -> str:
        found = len(chosen(rows))
        left = f"; --all shows {len(rows) - found} more, of the loop's own" if len(rows) > found else ""
        return count(found, "handle") + left

    def body(rows: list[HandleFigures]) -> str:
        names = ["FD", "KIND", "STATE", "UNSENT", "IN", "OUT", "OWNER", "ADDRESS"]
        return table(names, [_handle(row) for row in chosen(rows)], last=0.2)

    _show(pid, as_json, loops, headline, body)


def _handle(row: HandleFigures) -> list[str]:
    words = [
        row.state,
        "paused" if "reading" in row.paused else "",
        "full" if "writing" in row.paused else "",
    ]
    state = ", ".join(word for word in words if word)
    sizes = [size(number) if number else "" for number in (row.unsent, row.bytes_in, row.bytes_out)]
    fd = "" if row.fd is None else str(row.fd)
    return [fd, row.kind, state, *sizes, row.owner or "", row.peer or row.local or ""]


@click.command()
@click.argument("source", metavar="PID|FILE")
@AS_JSON
@reporting
def stalls(source: str, as_json: bool) -> None:
    """Show what has blocked the loops of a process: where, how long, and why.

    They are in its recording, also while it is stuck or stopped, and when it has died.
    """
    found = stuck.stalls_of(source)
    if as_json:
        click.echo(json.dumps({"pid": found.pid, "stalls": found.stalls, "starved": found.starved}))
        return
    click.echo(f"{found.title}: {count(len(found.stalls), 'stall') if found.stalls else 'no stalls'}")
    if found.starved:
        click.echo(starved(found.starved))
    for stall in found.stalls:
        lines = str(stall.get("text", "")).split("\n")
        click.echo("\n".join(["", *map(shown, lines)]))


# Tables for terminals.


def width() -> int | None:
    """Return the width of the terminal; None if there is none, as in a pipe."""
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS"):
        return None
    return shutil.get_terminal_size().columns


def table(names: list[str], rows: list[list[str]], last: float = 0.5) -> str:
    """Return rows under their names, without the columns that are empty in all rows; nothing for none.

    The last column gets what is left of the terminal's width, and at least this share of it. Without a
    terminal nothing is cut.
    """
    if not rows:
        return ""
    used = [place for place in range(len(names)) if any(row[place] for row in rows)]
    lines = [[names[place] for place in used]] + [[row[place] for place in used] for row in rows]
    full = width()
    widest = WIDEST if full is None else full
    sizes = [min(widest, max(columns_of(line[place]) for line in lines)) for place in range(len(used))]
    if full is not None:
        gaps = 2 * (len(sizes) - 1)
        room = max(full - gaps - sizes[-1], full - gaps - int(full * last))
        while sum(sizes[:-1]) > room and max(sizes[:-1]) > NARROWEST:
            sizes[sizes[:-1].index(max(sizes[:-1]))] -= 1
    cell = left if full is not None else padded
    texts = ([*map(cell, line[:-1], sizes), line[-1]] for line in lines)
    return "\n".join(_fitting("  ".join(cells).rstrip()) for cells in texts)


def _fitting(line: str) -> str:
    full = width()
    return line if full is None else cut(line, full)
