"""Names and representations of the program's own, as a terminal or a log may show them."""

from __future__ import annotations

LONGEST = 256  # bytes; a program may give a task a name of any length


def shown(text: str) -> str:
    """Return `text` with control characters escaped, cut at 256 bytes."""
    escaped = "".join(char if char.isprintable() else _escape(char) for char in text[:LONGEST])
    encoded = escaped.encode("utf-8", "replace")
    if len(encoded) <= LONGEST and len(text) <= LONGEST:
        return escaped
    return encoded[: LONGEST - 3].decode("utf-8", "ignore") + "…"


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
