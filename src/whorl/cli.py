"""The commands: `whorl run` and `whorl info`, those of the inspector, and those of the simulator."""

from __future__ import annotations

import importlib
import json
from typing import Final

import click

import whorl

_INSPECTOR: Final = "whorl.inspector.asking.commands"
_RECORDINGS: Final = "whorl.inspector.asking.recording_commands"
_VIEWS: Final = "whorl.inspector.view_commands"
#: Where the commands are that this file does not define. Each is imported when it is asked for.
_MODULES: Final = {
    "attach": _VIEWS,
    "dump": _RECORDINGS,
    "handles": _INSPECTOR,
    "metrics": _VIEWS,
    "report": _RECORDINGS,
    "sim": "whorl.sim.command",
    "stalls": _INSPECTOR,
    "tasks": _INSPECTOR,
    "top": _VIEWS,
    "trace": _RECORDINGS,
}


class _Commands(click.Group):
    """The group `whorl`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_MODULES])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return super().get_command(ctx, cmd_name)
        found: click.Command = getattr(importlib.import_module(_MODULES[cmd_name]), cmd_name)
        return found


_FOR_THE_PROGRAM = {"allow_interspersed_args": False, "ignore_unknown_options": True}


@click.group(cls=_Commands)
@click.version_option(whorl.__version__, prog_name="whorl")
def commands() -> None:
    """An event loop for asyncio."""


@commands.command(context_settings=_FOR_THE_PROGRAM)
@click.option("--server", is_flag=True, help="Collect the answers of a turn: whorl.server_loop.")
@click.option("--as-uvloop", is_flag=True, help="Give Whorl to programs that import uvloop: whorl.as_uvloop.")
@click.option("--inspect", is_flag=True, help="Report callbacks that keep a loop busy: whorl.inspector.")
@click.option(
    "--inspect-threshold",
    metavar="DURATION",
    help="Do so, for callbacks that take longer than this: 100ms, 1s or 2.5.",
)
@click.option("-m", "is_module", is_flag=True, help="PROGRAM is the name of a module, as for python -m.")
@click.option("-c", "is_command", is_flag=True, help="PROGRAM is the program itself, as for python -c.")
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    server: bool,
    as_uvloop: bool,
    inspect: bool,
    inspect_threshold: str | None,
    is_module: bool,
    is_command: bool,
    program: str,
    arguments: tuple[str, ...],
) -> None:
    """Run a program on Whorl's event loops.

    PROGRAM is a script, a folder or an archive with __main__.py, `-` for standard input, or
    package.module:function. All but a function run as they do under Python; their asyncio.run uses Whorl.
    A function is called without arguments, and run to its end if it is a coroutine function. The arguments
    after the program's name are in its sys.argv.
    """
    from whorl import launcher

    if is_module and is_command:
        raise click.UsageError("-m and -c exclude each other")
    if inspect or inspect_threshold is not None:
        _inspect(inspect_threshold)
    if as_uvloop:
        whorl.as_uvloop()
    kind = launcher.module if is_module else launcher.command if is_command else launcher.program
    try:
        start = kind(program, arguments)
    except launcher.NotAProgram as error:
        raise click.UsageError(str(error)) from None
    raise launcher.Launch(start, whorl.server_loop if server else whorl.new_event_loop)


def _inspect(threshold: str | None) -> None:
    """Start the inspector. The threshold comes before that of the environment."""
    from whorl.inspector import inspector
    from whorl.inspector.settings import duration

    try:
        inspector.start_from_outside(**({} if threshold is None else {"threshold": duration(threshold)}))
    except ValueError as error:
        raise click.UsageError(str(error)) from None


@commands.command()
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object.")
@click.option("--report", "for_issue", is_flag=True, help="For bug reports: more facts, no paths.")
def info(as_json: bool, for_issue: bool) -> None:
    """Print the facts about this Whorl, and the system's features for it."""
    from whorl import report

    facts = report.facts_for_issue() if for_issue else report.facts()
    click.echo(json.dumps(facts, indent=2) if as_json else report.as_text(facts))
