"""Operations on the loop's private lists, in few steps.

Compiled, a list that becomes empty again and again keeps its memory: CPython's own operations would give it
back and ask for it anew in every turn.
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if not cython.compiled:

    def append(entries: list[Any], entry: object) -> None:
        """Put an entry at the end."""
        entries.append(entry)

    def taken(batch: list[Any], index: int) -> Any:
        """Return an entry of a batch, and leave None in its place."""
        entry, batch[index] = batch[index], None
        return entry

    def last_taken(entries: list[Any]) -> Any:
        """Take the last entry out."""
        return entries.pop()

    def only_callback(batch: list[Any]) -> Any:
        """Take out the only entry, if it is a callback. Uncompiled, return None, so a batch runs."""

    def empty(batch: list[Any]) -> None:
        """Take everything out."""
        batch.clear()
