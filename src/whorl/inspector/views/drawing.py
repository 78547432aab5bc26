"""Pictures as lines of text, for a terminal of any width: the same ones plain and in the live view.

A line is a list of pieces, each with the name of its style. No style changes a width, so that lines without
styles stand as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from whorl.formats.cells import columns_of, cut, left, right
from whorl.formats.units import count, duration, number, size
from whorl.inspector.recordings.timeline import words_of_program
from whorl.inspector.tables.wording import starved
from whorl.inspector.views.pictures import LoopPicture, ProcessPicture, Times

BUSY = 0.9  # the utilization from which a bar is shown as one of a loop that has no time left
WARM = 0.6
LEAST_WIDTH = 69
MOST_ENDED = 3  # processes that have ended are shown beside those that go on
BLOCKS = " ▏▎▍▌▋▊▉█"
SPARKS = "▁▂▃▄▅▆▇█"


class Piece(NamedTuple):
    """Some text of a line."""

    text: str
    style: str = ""  #: "title", "head", "dim", "good", "warn", "bad", "alarm", or none


class Line(NamedTuple):
    """A line, and what it stands for if it can be chosen."""

    pieces: tuple[Piece, ...]
    key: tuple[int, int] | None = None  #: the process and the number of the loop

    @property
    def text(self) -> str:
        """The line without styles."""
        return "".join(piece.text for piece in self.pieces).rstrip()


def line(*pieces: str | Piece, key: tuple[int, int] | None = None) -> Line:
    """Return a line of these pieces."""
    return Line(tuple(piece if isinstance(piece, Piece) else Piece(piece) for piece in pieces), key)


def ago(seconds: float) -> str:
    """Return how long ago something was."""
    return "now" if seconds < 1 else f"{duration(seconds)} ago"


def bar(share: float, columns: int) -> tuple[Piece, Piece]:
    """Return a bar, filled to this share."""
    eighths = min(columns * 8, max(0, round(share * columns * 8)))
    full, rest = divmod(eighths, 8)
    filled = "█" * full + (BLOCKS[rest] if rest else "")
    style = "bad" if share >= BUSY else "warn" if share >= WARM else "good"
    return Piece(filled, style), Piece("·" * (columns - len(filled)), "dim")


def sparks(shares: Sequence[float], columns: int) -> Piece:
    """Return the last shares as a curve."""
    last = list(shares)[-columns:]
    return Piece("".join(SPARKS[min(7, max(0, int(share * 8)))] for share in last), "good")


def clipped(lines: Sequence[Line], width: int) -> list[Line]:
    """Return lines without what a terminal of this width has no room for."""
    found = []
    for one in lines:
        room, pieces = width, []
        for piece in one.pieces:
            text = cut(piece.text, room)
            room -= columns_of(text)
            pieces.append(Piece(text, piece.style))
        found.append(Line(tuple(pieces), one.key))
    return found


# Processes.


def _program_in(process: ProcessPicture) -> str:
    where = "" if process.namespace is None else f"[PID namespace {process.namespace}] "
    return where + " ".join(words_of_program(process.command))


def overview(pictures: Sequence[ProcessPicture], width: int, most_ended: int | None = None) -> list[Line]:
    """Return the table of all processes: a line for each loop, and one more for each that is stuck.

    Of those that have ended, only so many are shown.
    """
    ended = [process for process in pictures if not process.is_living]
    hidden = [] if most_ended is None else ended[most_ended:]
    pictures = [process for process in pictures if process not in hidden]
    terminal = width
    width = max(LEAST_WIDTH, width)
    if not pictures:
        return [
            line(Piece("No process is recorded.", "title")),
            line(),
            line("Start one with WHORL_INSPECT=1 python service.py, or by whorl run --inspect service.py,"),
            line("or let whorl attach PID begin in one that runs (Python 3.14 and newer)."),
        ]
    filled = max(6, min(20, (width - 60) // 2))
    program = width - 55 - filled
    heads = f"{'PID':>7} {left('PROGRAM', program)} LOOP {left('BUSY', filled + 5)}"
    found = [
        line(
            Piece(
                f"{heads} {'CALLS/S':>7} {'IN/S':>7} {'OUT/S':>7} {'AWAY':>11}",
                "head",
            )
        )
    ]
    for process in pictures:
        name = left(_program_in(process), program)
        style = "" if process.is_living else "dim"
        if not process.is_living:
            found.append(
                line(
                    Piece(f"{process.pid:>7} {name} ", style),
                    Piece(_end(process), "bad" if process.state == "died" else "dim"),
                    key=(process.pid, 0),
                )
            )
            for loop in process.loops:
                if (trouble := _trouble(loop)) is not None:
                    found.append(line(" " * 8, Piece(cut(trouble, width - 8), "bad"), key=(process.pid, 0)))
            continue
        loops = [loop for loop in process.loops if loop.state != "closed"]
        if not loops:
            found.append(
                line(f"{process.pid:>7} {name} ", Piece("no loop runs", "dim"), key=(process.pid, 0))
            )
        for place, loop in enumerate(loops):
            begin = f"{process.pid:>7} {name}" if not place else " " * (8 + program)
            key = (process.pid, loop.loop)
            found.append(
                line(f"{begin} {loop.loop:>4} ", *_busy(loop, filled), _rates(loop), key=key),
            )
            if (trouble := _trouble(loop)) is not None:
                found.append(line(" " * 8, Piece(cut(trouble, width - 8), "alarm"), key=key))
        found += _left_out(process)
    if hidden:
        text = f"and {len(hidden):,} more that have ended: d or --ended shows them"
        found.append(line(" " * 8, Piece(text, "dim")))
    return clipped(found, terminal)


def _left_out(process: ProcessPicture) -> list[Line]:
    """Return a line on the loops that a recording has no room for; none if there are none."""
    number = process.loops_left_out if process.is_living else 0
    text = f"and {count(number, 'more loop')}, for which the recording has no room"
    return [line(" " * 8, Piece(text, "warn"))] if number else []


def _busy(loop: LoopPicture, columns: int) -> tuple[Piece, ...]:
    return (*bar(loop.utilization, columns), Piece(f"{loop.utilization:5.0%}"))


def _rates(loop: LoopPicture) -> str:
    moved = f"{right(size(loop.bytes_in), 7)} {right(size(loop.bytes_out), 7)}"
    return f" {number(loop.callbacks):>7} {moved} {right(duration(loop.away.recent.max), 11)}"


def _end(process: ProcessPicture) -> str:
    return f"{process.state} {ago(process.seen_ago)}"


def _called(loop: LoopPicture) -> str:
    if loop.call is None:
        return ""
    return loop.call.name + (f" ({loop.call.task})" if loop.call.task else "")


def _trouble(loop: LoopPicture) -> str | None:
    """Return what is wrong with a loop, None if nothing is."""
    if loop.state == "died" and loop.call is not None and loop.call.seconds >= 0.1:
        return f"was stuck in {_called(loop)} for {duration(loop.call.seconds)} when it died"
    if loop.state == "stopped":
        return (
            "stopped"
            + (f" in {_called(loop)}" if loop.call is not None else "")
            + " (SIGSTOP, or a debugger)"
        )
    if loop.call is not None and loop.call.stuck:
        return f"stuck in {_called(loop)} for {duration(loop.call.seconds)}"
    return None


# One process.


def details(
    process: ProcessPicture, width: int, chosen: int = 0, history: Sequence[float] = (), height: int = 0
) -> list[Line]:
    """Return what is known of a process, and of one of its loops in depth: the chosen one, else the first.

    `history` has the loop's last utilizations. The lists at the end get what is left of the height.
    """
    terminal = width
    width = max(LEAST_WIDTH, width)
    lines = [_title(process, width), *_choice(process, chosen, width)]
    loop = chosen_loop(process, chosen)
    if loop is None:
        lines += [line(), line(Piece("No loop has run yet.", "dim"))]
    else:
        lines += [line(), *_figures(loop, process, width, history)]
    lines += _lists(process, width, max(3, height - len(lines)) if height else 12)
    return clipped(lines, terminal)


def chosen_loop(process: ProcessPicture, number: int) -> LoopPicture | None:
    """Return the loop with this number, else the busiest that is open, else the last."""
    for loop in process.loops:
        if loop.loop == number:
            return loop
    loops = [loop for loop in process.loops if loop.state != "closed"]
    if loops:
        return max(loops, key=lambda loop: (loop.state == "stuck", loop.utilization, -loop.loop))
    return process.loops[-1] if process.loops else None


def _title(process: ProcessPicture, width: int) -> Line:
    right_hand = f"Python {process.python}" if process.python else ""
    name = f"{process.pid}  {_program_in(process)}"
    if process.is_living:
        state = "" if process.state == "running" else "  stopped"
    else:
        state = f"  {_end(process)}"
    room = width - columns_of(right_hand) - 2
    name = cut(name, max(20, room - columns_of(state)))
    state = cut(state, max(0, room - columns_of(name)))
    gap = max(2, width - columns_of(name) - columns_of(state) - columns_of(right_hand))
    return line(Piece(name, "title"), Piece(state, "bad"), " " * gap, Piece(right_hand, "dim"))


def _choice(process: ProcessPicture, chosen: int, width: int) -> list[Line]:
    """Return a line for each loop, if there are several."""
    loops = [loop for loop in process.loops if loop.state != "closed"]
    if len(loops) < 2:
        return []
    filled = max(6, min(20, (width - 60) // 2))
    return [
        line(
            f"  loop {loop.loop:<3} {left(loop.state, 8)} ",
            *_busy(loop, filled),
            _rates(loop),
            key=(process.pid, loop.loop),
        )
        for loop in loops
    ] + _left_out(process)


def _figures(loop: LoopPicture, process: ProcessPicture, width: int, history: Sequence[float]) -> list[Line]:
    styles = {"stuck": "alarm", "stopped": "bad", "died": "bad", "running": "good"}
    head = f"loop {loop.loop}  "
    curve = sparks(history, min(30, width - 60))
    filled = width - columns_of(head) - 16 - (columns_of(curve.text) + 2 if curve.text else 0)
    lines = [
        line(
            head,
            Piece(loop.state, styles.get(loop.state, "dim")),
            " " * (9 - len(loop.state)),
            *bar(loop.utilization, min(40, filled)),
            Piece(f"{loop.utilization:5.0%}", "title"),
            "  ",
            curve,
        )
    ]
    trouble = _trouble(loop)
    if trouble is not None:
        lines.append(line(Piece(cut(trouble, width), "alarm")))
    lines.append(line())
    lines.append(
        _row(
            width,
            *(("turns", number(loop.turns) + "/s"), ("callbacks", number(loop.callbacks) + "/s")),
            *(("events", number(loop.events) + "/s"), ("in", size(loop.bytes_in) + "/s")),
            ("out", size(loop.bytes_out) + "/s"),
        )
    )
    jobs = f"{loop.jobs_running}" + (f" + {loop.jobs_waiting} waiting" if loop.jobs_waiting else "")
    lines.append(
        _row(
            width,
            *(("ready", f"{loop.ready:,}"), ("timers", f"{loop.timers:,}"), ("tasks", f"{loop.tasks:,}")),
            *(("connections", f"{loop.connections:,}"), ("jobs", jobs)),
            *((("handles", f"{loop.handles:,}"),) if loop.handles else ()),  # of `whorl.handles`
            *((("errors", f"{loop.errors:,}"),) if loop.errors else ()),
        )
    )
    lines.append(line())
    lines += _times_table(loop)
    return lines


def _row(width: int, *figures: tuple[str, str]) -> Line:
    """Return figures with their names on one line, as many as it takes."""
    pieces: list[Piece] = []
    used = 0
    for name, value in figures:
        needed = columns_of(name) + 1 + columns_of(value) + (3 if pieces else 0)
        if used + needed > width:
            break
        used += needed
        pieces += [Piece("   " if pieces else ""), Piece(f"{name} ", "dim"), Piece(value)]
    return line(*pieces)


def _times_table(loop: LoopPicture) -> list[Line]:
    heads = f"{'p50':>11}{'p99':>11}{'max':>11}"
    spreads = (("away", loop.away), ("timers late", loop.timer_late), ("callbacks", loop.callback))
    if loop.state in ("died", "closed"):
        return [
            line(Piece(f"{'':12}{heads}", "head")),
            *(line(f"{name:12}", *_three(spread.ever)) for name, spread in spreads),
        ]
    return [
        line(Piece(f"{'':12}{'last ' + duration(loop.over):^33}  {'since its beginning':^33}", "dim")),
        line(Piece(f"{'':12}{heads}  {heads}", "head")),
        *(line(f"{name:12}", *_three(spread.recent), "  ", *_three(spread.ever)) for name, spread in spreads),
    ]


def _three(times: Times) -> list[Piece]:
    return [
        Piece(
            right(duration(seconds), 11),
            "bad" if (seconds or 0) >= 0.1 else "warn" if (seconds or 0) >= 0.02 else "",
        )
        for seconds in (times.p50, times.p99, times.max)
    ]


def _lists(process: ProcessPicture, width: int, room: int) -> list[Line]:
    """Return the last stalls, and the longest calls beside the busiest coroutines."""
    lines: list[Line] = []
    calls = _calls(process, width)
    stalls = process.stalls
    if stalls:
        most = max(1, min(len(stalls), room - 2 - len(calls) if calls else room - 2, 6), min(3, room - 5))
        more = f", {process.stalls_seen:,} in all" if process.stalls_seen > 1 else ""
        lines += [line(), line(Piece(f"last stalls{more}", "head"))]
        for stall in stalls[:most]:
            when = "goes on" if not stall.ended else ago(stall.ago)
            lines.append(
                line(
                    Piece(when, "alarm" if not stall.ended else "dim"),
                    " " * (15 - len(when)),
                    Piece(right(duration(stall.length), 10), "warn"),
                    " ",
                    cut(stall.summary, width - 27),
                )
            )
    if process.starved:
        lines += [line(), line(Piece(cut(starved(process.starved), width), "warn"))]
    if calls:
        lines += [line(), *calls]
    return lines[:room] if room else lines


def _calls(process: ProcessPicture, width: int) -> list[Line]:
    """Return two lists beside each other, with their heads; nothing if both are empty."""
    if not process.longest and not process.busiest:
        return []
    half = (width - 2) // 2
    heads = (
        left(f"longest calls, last {duration(process.window)}", half),
        cut("busiest coroutines", half),
    )
    lines = [line(Piece("  ".join(heads), "head"))]
    for place in range(max(len(process.longest), len(process.busiest))):
        pieces = [Piece(" " * half)]
        if place < len(process.longest):
            long = process.longest[place]
            when, took = ago(long.ago), right(duration(long.seconds), 7)
            name = long.name + (f" ({long.task})" if long.task else "")
            room = half - columns_of(took) - columns_of(when) - 2
            pieces = [
                Piece(took, "bad" if long.seconds >= 0.1 else "warn"),
                Piece(f" {left(name, room)} "),
                Piece(when, "dim"),
            ]
        pieces.append(Piece("  "))
        if place < len(process.busiest):
            busy = process.busiest[place]
            steps = count(busy.steps, "step")
            share = busy.seconds / process.window if process.window else 0.0
            pieces += [
                Piece(f"{min(1.0, share):4.0%} "),
                Piece(left(busy.name, max(8, half - 6 - len(steps)))),
                Piece(f" {steps}", "dim"),
            ]
        lines.append(line(*pieces))
    return lines


def stalls(process: ProcessPicture, width: int) -> list[Line]:
    """Return the last stalls with their stacks, the newest first."""
    lines = [_title(process, max(LEAST_WIDTH, width)), line()]
    if not process.stalls:
        lines.append(line(Piece("No stalls.", "dim")))
    if process.starved:
        lines += [line(Piece(starved(process.starved), "warn")), line()]
    for stall in process.stalls:
        first, *rest = stall.text.split("\n")
        lines.append(
            line(Piece(f"{ago(stall.ago)}: ", "dim"), Piece(first, "warn" if stall.ended else "alarm"))
        )
        lines += [line(text) for text in rest]
        lines.append(line())
    return lines
