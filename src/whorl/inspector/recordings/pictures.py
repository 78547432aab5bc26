"""Pictures of a page, as SVG: shapes stretch with the page, and text stays text of the page beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from whorl.core.metrics import Histogram
from whorl.formats.units import duration_ns

#: The size of the drawing, which the page stretches.
WIDTH, HEIGHT = 960, 100
#: The shortest and the longest duration of an axis of durations, in nanoseconds.
SHORTEST_NS, LONGEST_NS = 1_000, 100_000_000_000
#: Bars of a histogram in a decade.
BARS_IN_DECADE = 8

Box = tuple[str, float, float, float, float, str]  #: class, x, y, width, height, what it says


def drawing(shapes: Iterable[str], name: str, kind: str = "") -> str:
    """Return a drawing that stretches to the width of the page; `name` is for those who hear the page."""
    inner = "".join(shapes)
    return (
        f'<svg class="{kind}" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(name)}">{inner}</svg>'
    )


def box(kind: str, x: float, y: float, width: float, height: float, says: str = "") -> str:
    """Return a rectangle; a pointer on it shows what it says."""
    title = f"<title>{escape(says)}</title>" if says else ""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}"'
    return f'<rect class="{kind}" {place}>{title}</rect>'


def area(kind: str, values: Sequence[float], most: float) -> str:
    """Return the area below equally wide steps; `most` is the full height."""
    if not values or most <= 0:
        return ""
    step = WIDTH / len(values)
    path = [f"M0 {HEIGHT}"]
    for place, value in enumerate(values):
        path.append(f"V{HEIGHT * (1 - min(value / most, 1)):.1f}H{(place + 1) * step:.1f}")
    return f'<path class="{kind}" d="{"".join(path)}V{HEIGHT}Z"/>'


def on_log_axis(number: float, least: float, most: float) -> float:
    """Return where a number is on a logarithmic axis, from 0 to 1."""
    if number <= least:
        return 0.0
    return min(1.0, math.log(number / least) / math.log(most / least))


def decades(least: float, most: float) -> list[int]:
    """Return the powers of ten of an axis, its ends too."""
    first, last = math.ceil(math.log10(least) - 1e-9), math.floor(math.log10(most) + 1e-9)
    return [10**power for power in range(first, last + 1)]


def label(share: float, text: str, kind: str = "") -> str:
    """Return a text at a share of the width."""
    end = " first" if share < 0.02 else " last" if share > 0.98 else ""
    return f'<span class="{kind}{end}" style="left:{100 * share:.2f}%">{escape(text)}</span>'


def axis_of_time(seconds: float) -> str:
    """Return the labels of an axis of seconds."""
    step = 10 ** math.floor(math.log10(seconds / 4)) if seconds > 0 else 1.0
    step *= next(factor for factor in (1, 2, 5, 10) if seconds / (step * factor) <= 8)
    count = int(seconds / step + 1e-9) if seconds > 0 else 0
    digits = max(0, -math.floor(math.log10(step)))
    texts = (
        [label(place * step / seconds, f"{place * step:.{digits}f} s") for place in range(count + 1)]
        if count
        else []
    )
    return f'<div class="axis">{"".join(texts)}</div>'


def histogram(found: Histogram, name: str) -> str:
    """Return the picture of a histogram of durations: both axes are logarithmic."""
    least, most = _range_of(found)
    bars: dict[int, int] = {}
    for upper, count in found.buckets():
        bar = math.floor(math.log10(max(upper, least) / least) * BARS_IN_DECADE + 1e-9)
        bars[bar] = bars.get(bar, 0) + count
    width = WIDTH / (math.log10(most / least) * BARS_IN_DECADE)
    tallest = math.log1p(max(bars.values()))
    shapes = []
    for bar, count in sorted(bars.items()):
        height = 92 * math.log1p(count) / tallest
        begin = least * 10 ** (bar / BARS_IN_DECADE)
        says = f"{count:,} of about {duration_ns(begin)}"
        shapes.append(box("bar", bar * width + 0.5, HEIGHT - height, width - 1, height, says))
    for kind, value in marks(found).items():
        x = WIDTH * on_log_axis(value, least, most)
        shapes.append(
            f'<path class="mark {kind}" d="M{x:.1f} 0V{HEIGHT}">'
            f"<title>{kind}: {duration_ns(value)}</title></path>"
        )
    ticks = decades(least, most)
    labels = [label(on_log_axis(tick, least, most), duration_ns(tick)) for tick in ticks]
    return f'{drawing(shapes, name, "hist")}<div class="axis">{"".join(labels)}</div>'


def _range_of(found: Histogram) -> tuple[int, int]:
    """Return the powers of ten around the durations."""
    smallest = max(found.buckets()[0][0], SHORTEST_NS)
    least = 10 ** math.floor(math.log10(smallest))
    most = 10 ** math.ceil(math.log10(max(found.max, least * 10)) + 1e-9)
    return least, most


def marks(found: Histogram) -> dict[str, int]:
    """Return the percentiles that are shown, and the greatest."""
    values = {f"p{percent}": found.percentile(percent) or 0 for percent in (50, 90, 99)}
    return values | {"max": found.max}


def shares(parts: Iterable[tuple[str, str, int]], whole: int) -> str:
    """Return a bar of parts: the class, the words and the time of each."""
    x, shapes = 0.0, []
    for kind, words, part in parts:
        width = WIDTH * part / whole if whole > 0 else 0
        if width > 0:
            shapes.append(box(kind, x, 0, width, HEIGHT, f"{words}: {duration_ns(part)}"))
        x += width
    return drawing(shapes, "shares of time", "shares")
