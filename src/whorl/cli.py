"""The commands: `whorl run` and `whorl info`, those of the inspector, and those of the simulator."""

from __future__ import annotations

import json

import click

import whorl
from whorl import launcher, report
from whorl.inspector import view_commands as views
from whorl.inspector.asking import commands as asking
from whorl.inspector.asking import recording_commands as recorded
from whorl.inspector.settings import duration

_ABOUT_SIM = """Run programs in simulated worlds, from seeds.

Exit codes: 0 without a finding, 1 with one, 2 for wrong arguments, 3 for runs that are not deterministic.
"""


class _Simulator(click.Group):
    """The group `whorl sim`, which imports the simulator only when one of its commands is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return self._loaded().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self._loaded().get_command(ctx, cmd_name)

    def _loaded(self) -> click.Group:
        from whorl.sim.command import sim

        return sim


_FOR_THE_PROGRAM = {"allow_interspersed_args": False, "ignore_unknown_options": True}


@click.group()
@click.version_option(whorl.__version__, prog_name="whorl")
def commands() -> None:
    """An event loop for asyncio."""


@commands.command(context_settings=_FOR_THE_PROGRAM)
@click.option("--server", is_flag=True, help="Collect the answers of a turn: whorl.server_loop.")
@click.option("--inspect", is_flag=True, help="Report callbacks that keep a loop busy: whorl.inspector.")
@click.option(
    "--inspect-threshold",
    metavar="DURATION",
    help="Do so, for callbacks that take longer than this: 100ms, 1s or 2.5.",
)
@click.argument("program", metavar="SCRIPT.py | PACKAGE.MODULE:FUNCTION")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    server: bool, inspect: bool, inspect_threshold: str | None, program: str, arguments: tuple[str, ...]
) -> None:
    """Run a program on Whorl's event loops.

    A script runs as it does under Python; its asyncio.run uses Whorl. A function is called without arguments,
    and run to its end if it is a coroutine function. The arguments after the program's name are in its
    sys.argv.
    """
    if inspect or inspect_threshold is not None:
        _inspect(inspect_threshold)
    try:
        launcher.launch(program, arguments, whorl.server_loop if server else whorl.new_event_loop)
    except launcher.NotAProgram as error:
        raise click.UsageError(str(error)) from None


def _inspect(threshold: str | None) -> None:
    """Start the inspector. The threshold comes before that of the environment."""
    from whorl.inspector import inspector

    try:
        inspector.start_from_outside(**({} if threshold is None else {"threshold": duration(threshold)}))
    except ValueError as error:
        raise click.UsageError(str(error)) from None


@commands.command()
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object.")
@click.option("--report", "for_issue", is_flag=True, help="For bug reports: more facts, no paths.")
def info(as_json: bool, for_issue: bool) -> None:
    """Print the facts about this Whorl, and the system's features for it."""
    facts = report.facts_for_issue() if for_issue else report.facts()
    click.echo(json.dumps(facts, indent=2) if as_json else report.as_text(facts))


for _command in (
    *(asking.tasks, asking.handles, asking.stalls, views.top, views.metrics, views.attach),
    *(recorded.dump, recorded.trace, recorded.report),
):
    commands.add_command(_command)
commands.add_command(_Simulator("sim", help=_ABOUT_SIM))
