"""The open connections of a server."""

from __future__ import annotations

from typing import Any

try:
    import cython
except ImportError:
    from whorl.core import uncompiled as cython

if not cython.compiled:
    import weakref

    identity = id
    weak_reference = weakref.ref


class Clients:
    """Transports, weakly: one that nobody refers to any more still complains that it was not closed."""

    __slots__ = ("_known", "is_over")

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}
        self.is_over = False  # whether somebody is to be told when the last one goes

    def __len__(self) -> int:
        return len(self._known)

    def add(self, transport: Any) -> None:
        """A connection begins."""
        self._known[identity(transport)] = weak_reference(transport)

    def discard(self, transport: Any) -> None:
        """A connection is over; once more changes nothing."""
        self._known.pop(identity(transport), None)

    def transports(self) -> list[Any]:
        """Those that are open."""
        found = [known() for known in list(self._known.values())]  # collecting may end some
        return [transport for transport in found if transport is not None]
