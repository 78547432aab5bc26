"""The open connections of a server."""

from __future__ import annotations

from typing import Any

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if not cython.compiled:
    import weakref

    identity = id
    weak_reference = weakref.ref


class ConnectionSet:
    """Weak references to transports.

    A transport without other references can still warn that it was not closed. Most transports store the
    index of their place here themselves: a dictionary would take far more memory.
    """

    __slots__ = ("_free", "_others", "_places", "is_over")

    def __init__(self) -> None:
        self._places: list[Any] = []  # a weak reference each, or None
        self._free: list[int] = []  # the places with None
        self._others: dict[int, Any] = {}
        self.is_over = False  # whether a callback runs when the last connection goes

    def __len__(self) -> int:
        return len(self._places) - len(self._free) + len(self._others)

    def enter(self, transport: Any) -> int:
        """Add a transport that stores the index of its place."""
        known = weak_reference(transport)
        if not self._free:
            self._places.append(known)
            return len(self._places) - 1
        place = self._free.pop()
        self._places[place] = known
        return place

    def leave(self, place: int) -> None:
        """Remove the connection at a place. Call this once only."""
        self._free.append(place)
        self._places[place] = None
        if len(self._free) == len(self._places):
            self._free.clear()
            self._places.clear()

    def add(self, transport: Any) -> None:
        """Add a connection."""
        self._others[identity(transport)] = weak_reference(transport)

    def discard(self, transport: Any) -> None:
        """Remove a connection; a second call changes nothing."""
        self._others.pop(identity(transport), None)

    def transports(self) -> list[Any]:
        """Return the open connections."""
        # Collecting may end some meanwhile.
        found = [known() for known in [*self._places, *self._others.values()] if known is not None]
        return [transport for transport in found if transport is not None]
