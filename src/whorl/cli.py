"""The commands: `whorl run` and `whorl info`, and those of the inspector."""

from __future__ import annotations

import json

import click

import whorl
from whorl import launcher, report
from whorl.inspector import commands as asking

_FOR_THE_PROGRAM = {"allow_interspersed_args": False, "ignore_unknown_options": True}


@click.group()
@click.version_option(whorl.__version__, prog_name="whorl")
def commands() -> None:
    """An event loop for asyncio."""


@commands.command(context_settings=_FOR_THE_PROGRAM)
@click.option("--server", is_flag=True, help="Collect the answers of a turn: whorl.server_loop.")
@click.argument("program", metavar="SCRIPT.py | PACKAGE.MODULE:FUNCTION")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(server: bool, program: str, arguments: tuple[str, ...]) -> None:
    """Run a program on Whorl's event loops.

    A script runs as it does under Python; its asyncio.run uses Whorl. A function is called without arguments,
    and run to its end if it is a coroutine function. The arguments after the program's name are in its
    sys.argv.
    """
    try:
        launcher.launch(program, arguments, whorl.server_loop if server else whorl.new_event_loop)
    except launcher.NotAProgram as error:
        raise click.UsageError(str(error)) from None


@commands.command()
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object.")
def info(as_json: bool) -> None:
    """Print the facts about this Whorl, and the system's features for it."""
    facts = report.facts()
    click.echo(json.dumps(facts, indent=2) if as_json else report.as_text(facts))


for _command in (asking.tasks, asking.handles, asking.stalls):
    commands.add_command(_command)
