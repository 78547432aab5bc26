"""The commands `whorl top` and `whorl metrics`, which read recordings, and `whorl attach`."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from whorl.inspector.asking.commands import AS_JSON, PID, missing, number_of_process, reporting, width
from whorl.inspector.settings import duration

if TYPE_CHECKING:
    from whorl.inspector.views.pictures import ProcessPicture
    from whorl.inspector.views.sources import Source

#: The seconds between two pictures, and between the two readings of one.
INTERVAL = 1.0
#: The same for `whorl metrics`, whose reader has rates of its own.
METRICS_INTERVAL = 0.05
SHORTEST_INTERVAL = 0.05
LONGEST_INTERVAL = 3600.0
JSON_VERSION = 1


class _Seconds(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A duration such as 500ms."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        try:
            seconds = duration(value) if isinstance(value, str) else float(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not SHORTEST_INTERVAL <= seconds <= LONGEST_INTERVAL:
            self.fail(f"it is from {SHORTEST_INTERVAL:g} to {LONGEST_INTERVAL:g} seconds", param, ctx)
        return seconds


@click.command()
@click.argument("pid", callback=number_of_process, required=False)
@click.option("--interval", type=_Seconds(), metavar="DURATION", help="Look so often: 500ms or 1s (default).")
@click.option("--once", is_flag=True, help="Show one picture, and end.")
@AS_JSON
@click.option("--plain", is_flag=True, help="Text, without keys and colours.")
@click.option("--ended", is_flag=True, help="Show all processes that have ended, and not only the last ones.")
@reporting
def top(pid: int | None, interval: float | None, once: bool, as_json: bool, plain: bool, ended: bool) -> None:
    """Watch the loops of all recorded processes, or of one in depth.

    The process need not answer: it may be stuck, stopped, or dead. Record one by WHORL_INSPECT=1,
    `whorl run --inspect` or `whorl attach`.
    """
    from whorl.inspector.views.sources import Source

    source = Source(pid)
    if once or as_json:
        _once(source, interval, as_json, ended)
    elif plain or not (sys.stdin.isatty() and sys.stdout.isatty()):
        _repeatedly(source, interval or INTERVAL, ended)
    else:
        source.look()  # A process that is not recorded ends the command, and not the view.
        try:
            from whorl.inspector.views.live import Live
        except ImportError as error:
            click.echo(f"whorl: {missing(error)}; this is the plain view", err=True)
            _repeatedly(source, interval or INTERVAL, ended)
        else:
            Live(source, interval or INTERVAL).run()


def _once(source: Source, interval: float | None, as_json: bool, ended: bool) -> None:
    """Show one picture. Its rates are those of an interval."""
    pictures = source.look()
    if any(picture.is_living and picture.state != "stopped" for picture in pictures):
        time.sleep(interval or INTERVAL)
        pictures = source.look()
    if as_json:
        import dataclasses

        found = {
            "version": JSON_VERSION,
            "time": time.time(),
            "processes": [dataclasses.asdict(picture) for picture in pictures],
        }
        click.echo(json.dumps(found, ensure_ascii=False))
    else:
        _show(source, pictures, ended)


def _repeatedly(source: Source, interval: float, ended: bool) -> None:
    """Show a picture after each interval, until the reader has seen enough or the process is dead."""
    source.look()
    try:
        while True:
            time.sleep(interval)
            pictures = source.look()
            _show(source, pictures, ended)
            if source.pid is not None and not any(picture.is_living for picture in pictures):
                return
            click.echo()
    except KeyboardInterrupt:
        pass


def _show(source: Source, pictures: list[ProcessPicture], ended: bool) -> None:
    from whorl.inspector.views import drawing

    columns = width() or 120
    if source.pid is None:
        lines = drawing.overview(pictures, columns, None if ended else drawing.MOST_ENDED)
    else:
        lines = drawing.details(pictures[0], columns)
    _echo(line.text for line in lines)


def _echo(lines: Any) -> None:
    """Print lines. A character that the terminal's encoding lacks is replaced."""
    encoding = sys.stdout.encoding or "utf-8"
    text = "\n".join(lines)
    click.echo(text.encode(encoding, "replace").decode(encoding))


@click.command()
@PID
@click.option(
    "--format",
    "form",
    type=click.Choice(["prometheus", "json"]),
    default="prometheus",
    show_default=True,
)
@click.option("--label", "labels", metavar="NAME=VALUE", multiple=True, help="Add a label to each sample.")
@reporting
def metrics(pid: int, form: str, labels: tuple[str, ...]) -> None:
    """Print the figures of a process's loops for Prometheus.

    The process need not answer. The text is one for the textfile collector of node_exporter. The utilization
    is that of 50 ms. It needs prometheus_client: pip install 'whorl-loop[prometheus]'
    """
    from whorl.inspector.asking import finding
    from whorl.inspector.views import exposition
    from whorl.inspector.views.pictures import Reading

    try:
        added = exposition.labels_of(labels)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    earlier = None
    reading = Reading.of(finding.recording_of(pid, events=0))
    if reading.found.is_living:
        time.sleep(METRICS_INTERVAL)
        earlier, reading = reading, Reading.of(finding.recording_of(pid, events=0))
    collector = exposition.RecordingCollector(reading, earlier, added)
    write = exposition.as_text if form == "prometheus" else exposition.as_json
    click.echo(write(collector), nl=False)


@click.command()
@PID
@reporting
def attach(pid: int) -> None:
    """Begin to inspect a process that runs, on Python 3.14 and newer.

    It must use Whorl. Its loops go on, and lose nothing. `whorl top`, `whorl tasks` and the others show it
    from then on.
    """
    from whorl.inspector.asking import attach as attaching

    attaching.attach(pid)
    click.echo(f"process {pid} is inspected")
