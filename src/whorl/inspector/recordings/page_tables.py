"""The part of a page that has tables: callbacks, coroutines and tasks by their times."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from whorl.core.recording import layout
from whorl.formats.units import duration_ns
from whorl.inspector.recordings import pictures
from whorl.inspector.recordings.summary import Summary, Total

MOST_CALLS = 40


def calls(summary: Summary) -> Iterator[str]:
    """Yield the table of callbacks and coroutines."""
    found = summary.busiest_calls()
    yield "<h2>Callbacks and coroutines</h2>"
    if not found:
        yield f'<p class="weak">None took longer than {duration_ns(layout.SHORTEST_RECORDED_NS)}.</p>'
        return
    short = duration_ns(layout.SHORTEST_RECORDED_NS)
    yield f'<p class="weak">Of a coroutine, each step counts. Shorter ones than {short} may be left out.</p>'
    yield _table(found[:MOST_CALLS], ("name", "kind"))
    if len(found) > MOST_CALLS:
        yield f'<p class="weak">and {len(found) - MOST_CALLS} more</p>'


def tasks(summary: Summary) -> Iterator[str]:
    """Yield how many tasks there were, and the busiest ones."""
    made, done = summary.sum_of("tasks_made"), summary.sum_of("tasks_done")
    busiest = summary.busiest_tasks()
    if not (made or busiest):
        return
    yield "<h2>Tasks</h2>"
    bad = [
        f"{number:,} {word}"
        for number, word in ((summary.tasks_cancelled, "were cancelled"), (summary.tasks_failed, "failed"))
        if number
    ]
    recently = f" Of those that ended lately, {' and '.join(bad)}." if bad else ""
    yield f'<p class="weak">{made:,} made, {done:,} done, {max(0, made - done):,} left.{recently}</p>'
    if busiest:
        yield _table(busiest, ("coroutine", "task"))


def _table(totals: list[Total], names: tuple[str, str]) -> str:
    """Return a table of totals; a click on a title sorts it."""
    most = max(total.total_ns for total in totals) or 1
    titles = (
        f'<th data-sorts="text">{names[0]}</th><th class="text" data-sorts="text">{names[1]}</th>'
        '<th class="part"></th><th data-sorts="number" aria-sort="descending">total</th>'
        '<th data-sorts="number">longest</th><th data-sorts="number" class="less">mean</th>'
        '<th data-sorts="number">times</th>'
    )
    rows = []
    for total in totals:
        mean = total.total_ns // max(1, total.count)
        name, kind = escape(total.name), escape(total.kind)
        part = pictures.drawing(
            [pictures.box("busy", 0, 0, 960 * total.total_ns / most, 100)], "share of the most"
        )
        times = ((total.total_ns, ""), (total.longest_ns, ""), (mean, ' class="less"'))
        cells = "".join(f'<td data-value="{ns}"{kind_}>{duration_ns(ns)}</td>' for ns, kind_ in times)
        rows.append(
            f'<tr><td class="name" data-value="{name}">{name}</td>'
            f'<td class="text" data-value="{kind}">{kind}</td><td class="part">{part}</td>{cells}'
            f'<td data-value="{total.count}">{total.count:,}</td></tr>'
        )
    head, body = f"<thead><tr>{titles}</tr></thead>", f"<tbody>{''.join(rows)}</tbody>"
    return f'<div class="card scroll"><table>{head}{body}</table></div>'
