"""Texts in the cells of a terminal: wide characters take two columns, combining ones none."""

from __future__ import annotations

import unicodedata


def columns_of(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def cut(text: str, columns: int) -> str:
    """Return a text that takes at most so many columns."""
    if columns_of(text) <= columns:
        return text
    while text and columns_of(text) >= columns:
        text = text[: min(columns, len(text)) - 1]
    return text + "…" if columns > 0 else ""


def left(text: str, columns: int) -> str:
    """Return a text in exactly so many columns."""
    return padded(cut(text, columns), columns)


def padded(text: str, columns: int) -> str:
    """Return a text in at least so many columns."""
    return text + " " * (columns - columns_of(text))


def right(text: str, columns: int) -> str:
    """Return a text at the end of so many columns."""
    return " " * (columns - columns_of(text)) + text
