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
    index of their slot here themselves: a dictionary would take far more memory.
    """

    def __init__(self) -> None:
        self._slots: list[Any] = []  # a weak reference each, or None
        self._free_slots: list[int] = []  # the indices of the slots with None
        self._others: dict[int, Any] = {}
        self.is_over: bool = False  # whether a callback runs when the last connection goes
        self.expected_pieces: int = 1  # how often callbacks of a new connection are likely to write

    def __len__(self) -> int:
        return len(self._slots) - len(self._free_slots) + len(self._others)

    def add_slot(self, transport: Any) -> int:
        """Add a transport that stores the index of its slot."""
        known = weak_reference(transport)
        if not self._free_slots:
            self._slots.append(known)
            return len(self._slots) - 1
        slot = self._free_slots.pop()
        self._slots[slot] = known
        return slot

    def discard_slot(self, slot: int) -> None:
        """Remove the connection of a slot. Call this once only."""
        self._free_slots.append(slot)
        self._slots[slot] = None
        if len(self._free_slots) == len(self._slots):
            self._free_slots.clear()
            self._slots.clear()

    def add(self, transport: Any) -> None:
        """Add a connection."""
        self._others[identity(transport)] = weak_reference(transport)

    def discard(self, transport: Any) -> None:
        """Remove a connection; a second call changes nothing."""
        self._others.pop(identity(transport), None)

    def transports(self) -> list[Any]:
        """Return the open connections."""
        # Collecting may end some meanwhile.
        found = [known() for known in [*self._slots, *self._others.values()] if known is not None]
        return [transport for transport in found if transport is not None]
