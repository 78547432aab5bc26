"""Bars as SVG. Mid-tones on no background: the picture is readable on a light and on a dark page."""

from collections.abc import Mapping, Sequence
from html import escape

TEXT = "#7d8590"
COLOURS = ("#9aa4af", "#c1666b", "#2a9d6e")  # the last loop is Whorl
WIDTH = 800
LEFT, RIGHT, TOP = 100, 50, 34  # room for names, for numbers, for the legend
BAR, GAP = 11, 15  # heights: of a bar, and between groups
TICK = 1.0


def draw(groups: Mapping[str, Sequence[float]], loops: Sequence[str], reference: str) -> str:
    """Return a group of bars for each name, a bar in it for each loop; `reference` is the line at 1."""
    longest = max(value for values in groups.values() for value in values)
    unit = (WIDTH - LEFT - RIGHT) / longest
    height = TOP + len(groups) * (BAR * len(loops) + GAP) + 22
    parts = [*_legend(loops), *_grid(longest, unit, height, reference)]
    for number, (name, values) in enumerate(groups.items()):
        top = TOP + GAP / 2 + number * (BAR * len(loops) + GAP)
        middle = top + BAR * len(loops) / 2 + 4
        parts.append(_text(LEFT - 10, middle, name, "end", size=13))
        for position, value in enumerate(values):
            y = top + position * BAR
            parts.append(
                f'<rect x="{LEFT}" y="{y:.1f}" width="{value * unit:.1f}" height="{BAR - 1}" '
                f'rx="1.5" fill="{COLOURS[position]}"/>'
            )
            parts.append(_text(LEFT + value * unit + 5, y + BAR - 2, f"{value:.2f}", size=10))
    lines = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'width="{WIDTH}" height="{height:.0f}" font-family="system-ui, sans-serif" fill="{TEXT}">\n'
        f"{lines}\n</svg>\n"
    )


def _legend(loops: Sequence[str]) -> list[str]:
    parts = []
    for position, loop in enumerate(loops):
        x = LEFT + 120 * position
        parts.append(f'<rect x="{x}" y="7" width="11" height="11" rx="1.5" fill="{COLOURS[position]}"/>')
        parts.append(_text(x + 17, 17, loop))
    return parts


def _grid(longest: float, unit: float, height: float, reference: str) -> list[str]:
    """Return the line of the reference, and weak lines at its multiples."""
    parts = []
    for number in range(1, int(longest / TICK) + 1):
        x = LEFT + number * TICK * unit
        style = 'stroke-width="1.5" stroke-dasharray="4 3"' if number == 1 else 'stroke-opacity="0.25"'
        title = f"{reference} = 1" if number == 1 else f"{number}"
        parts.append(f'<path d="M{x:.1f} {TOP - 4}V{height - 20:.1f}" stroke="{TEXT}" {style}/>')
        parts.append(_text(x, height - 6, title, "middle"))
    return parts


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">{escape(text)}</text>'
