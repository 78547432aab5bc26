"""Numbers with their units, for people: durations, sizes and counts have one look wherever they are shown."""

from __future__ import annotations


def duration(seconds: float | None) -> str:
    """Return a duration such as `1.3 ms`, `3.8 s` or `1 min 36 s`; `-` if there is none."""
    if seconds is None:
        return "-"
    if seconds >= 59.5:
        return _long(round(seconds))
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= factor * 0.9995:
            return f"{_digits(seconds / factor)} {unit}"
    return f"{seconds * 1e9:.0f} ns" if seconds else "0 s"


def duration_ns(nanoseconds: float) -> str:
    """Return a duration that is counted in nanoseconds."""
    return duration(nanoseconds / 1e9)


def _long(seconds: int) -> str:
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    if seconds < 48 * 3600:
        return f"{seconds // 3600} h {seconds % 3600 // 60} min"
    return f"{seconds // 86400} days"


def number(value: float) -> str:
    """Return a number in at most six columns, such as `12 k`."""
    for unit, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor * 0.9995:
            return f"{_digits(value / factor)} {unit}"
    return _digits(value)


def size(value: float) -> str:
    """Return a number of bytes in at most seven columns, such as `4.2 MB`."""
    text = number(value)
    return f"{text}B" if text[-1].isalpha() else f"{text} B"


def _digits(value: float) -> str:
    return f"{value:.{1 if value < 9.95 else 0}f}".removesuffix(".0")


def count(number: int, what: str) -> str:
    """Return a number with what is counted, such as `1,000 tasks`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
