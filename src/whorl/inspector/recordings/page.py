"""A recording as one page of HTML: for a person who asks why a service hangs.

The page needs no network, and no script for reading. Each text that comes from the program is escaped.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from html import escape
from pathlib import Path

from whorl.formats.units import duration_ns, size
from whorl.inspector.recordings import page_stalls, page_tables, pictures
from whorl.inspector.recordings.over_time import OverTime
from whorl.inspector.recordings.recording import RecordedLoop, Recording
from whorl.inspector.recordings.summary import BLOCKED_NS, BUSY, Summary
from whorl.inspector.recordings.timeline import Timeline, program
from whorl.inspector.recordings.trace import utc
from whorl.inspector.tables.wording import shown

STYLE, SCRIPT = (
    f"\n{Path(__file__).with_name(name).read_text(encoding='utf-8')}" for name in ("page.css", "page.js")
)
HISTOGRAMS = {
    "away": ("Away", "From the end of a poll to the next one: the loop was blind so long."),
    "late": ("Timers late", "From the deadline of a timer until the loop noticed it."),
    "callback": ("Callbacks", "How long a callback ran, of one turn in 61."),
    "slept": ("Slept", "Each sleep: the loop had nothing to do."),
}
#: The counters that are shown.
COUNTED = (
    *("bytes_in", "bytes_out", "reads", "writes", "accepts", "connections_opened", "connections_closed"),
    *("timers_fired", "jobs_submitted", "errors_reported"),
)


def page(recording: Recording, *, state: str = "", seconds: float | None = None) -> str:
    """Return the page; `state` says in words what the process does now, if that is known."""
    timeline = Timeline(recording, seconds)
    summary = Summary(timeline)
    script = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{script}'"
    name = escape(program(recording))
    parts = [
        *_head(recording, timeline, summary, state),
        *_over_time(summary),
        *page_stalls.stalls(summary),
        *_histograms(summary),
        *page_tables.calls(summary),
        *page_tables.tasks(summary),
        *_traffic(summary),
        *_footer(recording, timeline),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f"<title>{name}: what its loop did</title>\n"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<style>{STYLE}</style></head>\n<body><main>\n"
        + "\n".join(parts)
        + f"\n</main><script>{SCRIPT}</script></body></html>\n"
    )


# The head: what it is, the verdict, the figures.


def _head(recording: Recording, timeline: Timeline, summary: Summary, state: str) -> Iterator[str]:
    lasted = timeline.end_ns - timeline.begin_ns
    words = [shown(word) for word in recording.command]
    command = " ".join([word.rpartition("/")[2] for word in words[:1]] + words[1:])
    facts = [
        f"<code>{escape(command)}</code>" if command else "",
        f"process {recording.pid}",
        f"Whorl {escape(shown(recording.whorl))}" if recording.whorl else "",
        f"Python {escape(shown(recording.python))}" if recording.python else "",
        f"{utc(recording.clock_ns + timeline.begin_ns)}, {duration_ns(lasted)}",
        escape(state),
    ]
    yield f"<header><h1>{escape(program(recording))}</h1>"
    yield f'<p class="facts">{"".join(f"<span>{fact}</span>" for fact in facts if fact)}</p></header>'
    verdict = summary.verdict()
    worst = verdict[0][0] if verdict else "good"
    lines = "".join(f'<li class="{kind}">{escape(text)}</li>' for kind, text in verdict)
    yield f'<ul class="verdict {worst}">{lines}</ul>'
    yield f'<dl class="tiles">{"".join(_tiles(summary))}</dl>'


def _tiles(summary: Summary) -> Iterator[str]:
    share = summary.utilization
    if share is not None:
        yield _tile("busy", f"{100 * share:.0f} %", "warn" if share >= BUSY else "")
    blocked = [stall.length_ns for stall in summary.stalls]
    longest = max([*blocked, *(span.event.took_ns for span in summary.longest)], default=0)
    yield _tile("stalls", str(len(blocked)), "bad" if blocked else "")
    if longest:
        yield _tile("longest callback", duration_ns(longest), "bad" if longest >= BLOCKED_NS else "")
    away = [loop.histograms.away for loop in summary.loops if loop.histograms.away.count]
    if away:
        worst = max(histogram.percentile(99) or 0 for histogram in away)
        yield _tile("away, p99", duration_ns(worst), "bad" if worst >= BLOCKED_NS else "")
    yield _tile("tasks made", f"{summary.sum_of('tasks_made'):,}")
    moved = sum(loop.counters["bytes_in"] + loop.counters["bytes_out"] for loop in summary.loops)
    if moved:
        yield _tile("bytes in and out", size(moved))


def _tile(name: str, value: str, kind: str = "") -> str:
    return f'<div class="{kind}"><dt>{name}</dt><dd>{value}</dd></div>'


# Over time.


def _over_time(summary: Summary) -> Iterator[str]:
    yield "<h2>Over time</h2>"
    numbers = sorted({span.event.loop for span in summary.timeline.spans if span.event.loop})
    if not numbers:
        yield '<p class="weak">The recording has no events.</p>'
        return
    for number in numbers:
        title = f"<h3>Loop {number}</h3>" if len(numbers) > 1 else ""
        yield f'<div class="card">{title}{OverTime(summary, number).picture()}{_key(summary)}</div>'


def _key(summary: Summary) -> str:
    entries = {"main": "callback", "warn": "10 ms or more", "bad": "100 ms or more"}
    if summary.collected:
        entries["mark"] = "garbage collector"
    items = (f'<span><i style="background:var(--{name})"></i>{text}</span>' for name, text in entries.items())
    return f'<p class="key">{"".join(items)}</p>'


# Histograms.


def _histograms(summary: Summary) -> Iterator[str]:
    cards = [card for loop in summary.loops for card in _histograms_of(loop, len(summary.loops) > 1)]
    if cards:
        yield "<h2>How long things take</h2>"
        yield '<p class="weak">Since the loop began, not only in the time above. Axes are logarithmic.</p>'
        yield f'<div class="grid2">{"".join(cards)}</div>'


def _histograms_of(loop: RecordedLoop, is_one_of_many: bool) -> Iterator[str]:
    for field, (title, words) in HISTOGRAMS.items():
        found = getattr(loop.histograms, field)
        if found.count and found.max:
            which = f", loop {loop.number}" if is_one_of_many else ""
            marks = "".join(
                f"<span>{name} <b>{duration_ns(ns)}</b></span>" for name, ns in pictures.marks(found).items()
            )
            yield (
                f'<div class="card"><h3>{title}{which} <small>{found.count:,}</small></h3>'
                f'<small>{words}</small>{pictures.histogram(found, title)}<p class="marks">{marks}</p></div>'
            )


# Bytes and connections.


def _traffic(summary: Summary) -> Iterator[str]:
    totals = {name: sum(loop.counters[name] for loop in summary.loops) for name in COUNTED}
    pictured = [text for loop in summary.loops if (text := OverTime(summary, loop.number).traffic())]
    if not any(totals.values()) and not pictured:
        return
    yield "<h2>Bytes and connections</h2>"
    tiles = [
        _tile(name.replace("_", " "), size(value) if name.startswith("bytes") else f"{value:,}")
        for name, value in totals.items()
        if value
    ]
    colours = {"cold": "in", "main": "out"}
    key = "".join(
        f'<span><i style="background:var(--{name})"></i>{text}</span>' for name, text in colours.items()
    )
    for text in pictured:
        yield f'<div class="card">{text}<p class="key">{key}</p></div>'
    yield f'<dl class="tiles" style="margin-top:12px">{"".join(tiles)}</dl>'
    kinds = [
        f"{escape(kind)} ({opened:,} opened, {summary.closed[kind]:,} closed)"
        for kind, opened in summary.opened.most_common(8)
    ]
    if kinds:
        yield f'<p class="weak">Handles in the time above: {", ".join(kinds)}.</p>'


def _footer(recording: Recording, timeline: Timeline) -> Iterator[str]:
    lost = recording.first_event
    older = f"{lost:,} older events were overwritten. " if lost else ""
    yield (
        f"<footer>{len(timeline):,} events. {older}"
        "Counters and histograms are those of the whole run of each loop. "
        "A number in a red circle leads to its stall. "
        "A click on the title of a column sorts its table.</footer>"
    )
