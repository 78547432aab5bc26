"""A soak as SVG: memory over time, and latencies. Mid-tones on no background, for light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import Any

TEXT = "#7d8590"
COLOURS = {"whorl": "#2a9d6e", "asyncio": "#c1666b"}
WIDTH = 800
LEFT, RIGHT = 165, 20
MEMORY_TOP, MEMORY_HEIGHT = 40, 140
LATENCY_TOP = MEMORY_TOP + MEMORY_HEIGHT + 70
ROW = 26
SHORTEST, LONGEST = 1e-4, 10.0  # seconds, at the ends of the scale


def draw(found: Mapping[str, Any]) -> str:
    """Return the picture of the figures of each loop."""
    loads = list(next(iter(found.values()))["latencies"])
    height = LATENCY_TOP + ROW * len(loads) + 40
    parts = [*_memory(found), *_scale(height - 30), *_latencies(found, loads)]
    lines = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" font-family="system-ui, sans-serif" font-size="12">\n{lines}\n</svg>\n'
    )


def _memory(found: Mapping[str, Any]) -> list[str]:
    seconds = max(figures["memory"][-1][0] for figures in found.values()) or 1.0
    most = max(used for figures in found.values() for _, used in figures["memory"])
    bottom = MEMORY_TOP + MEMORY_HEIGHT
    parts = [_text(LEFT, MEMORY_TOP - 14, f"memory in use, MB, over {seconds:,.0f} seconds")]
    for share in (0, 0.5, 1):
        y = bottom - share * MEMORY_HEIGHT
        parts.append(_line(LEFT, y, WIDTH - RIGHT, y))
        parts.append(_text(LEFT - 10, y + 4, f"{share * most / 2**20:.0f}", "end"))
    for number, (name, figures) in enumerate(found.items()):
        points = " ".join(
            f"{LEFT + at / seconds * (WIDTH - LEFT - RIGHT):.1f},{bottom - used / most * MEMORY_HEIGHT:.1f}"
            for at, used in figures["memory"]
        )
        colour = COLOURS.get(name, TEXT)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(WIDTH - RIGHT - 80 * number, MEMORY_TOP - 14, name, "end", colour))
    return parts


def _scale(bottom: float) -> list[str]:
    parts = [_text(LEFT, LATENCY_TOP - 34, "latency: median, 99 of 100, longest; a line for each loop")]
    second = SHORTEST
    while second <= LONGEST:
        x = _across(second)
        parts.append(
            f'<line x1="{x:.1f}" y1="{LATENCY_TOP - 8}" x2="{x:.1f}" y2="{bottom}" '
            f'stroke="{TEXT}" opacity="0.3"/>'
        )
        label = f"{second * 1000:g} ms" if second < 1 else f"{second:g} s"
        parts.append(_text(x, LATENCY_TOP - 14, label, "middle"))
        second *= 10
    return parts


def _latencies(found: Mapping[str, Any], loads: list[str]) -> list[str]:
    parts = []
    for row, load in enumerate(loads):
        middle = LATENCY_TOP + ROW * (row + 0.5)
        parts.append(_text(LEFT - 10, middle + 4, load, "end"))
        for number, (name, figures) in enumerate(found.items()):
            y = middle + 8 * (number - (len(found) - 1) / 2)
            median, often, _, longest = map(_across, figures["latencies"][load]["percentiles"])
            colour = COLOURS.get(name, TEXT)
            parts.append(_line(median, y, longest, y, colour, 1))
            parts += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"/>'
                for x, radius in ((median, 4), (often, 3), (longest, 1.5))
            ]
    return parts


def _across(seconds: float) -> float:
    share = math.log(min(max(seconds, SHORTEST), LONGEST) / SHORTEST) / math.log(LONGEST / SHORTEST)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str = TEXT, opacity: float = 0.3) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" opacity="{opacity}"/>'


def _text(x: float, y: float, words: str, anchor: str = "start", colour: str = TEXT) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'
