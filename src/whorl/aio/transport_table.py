"""Which transport has which descriptor."""

from __future__ import annotations

import weakref
from typing import Any


class TransportTable:
    """The open transports of a loop's sockets, by descriptor.

    Weak: who forgets a transport that does nothing is told so.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, weakref.ref[Any]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def add(self, fd: int, transport: Any) -> None:
        """A transport begins to use a descriptor."""
        self._known[fd] = weakref.ref(transport)

    def discard(self, fd: int, transport: Any) -> None:
        """A transport uses a descriptor no longer; another one may do so already."""
        known = self._known.get(fd)
        if known is not None:
            found = known()
            if found is None or found is transport:
                del self._known[fd]

    def get(self, fd: int) -> Any:
        """The transport of a descriptor, or None."""
        known = self._known.get(fd)
        return None if known is None else known()

    # As asyncio's own transports, which may run on our loop too, ask for it.

    def __setitem__(self, fd: int, transport: Any) -> None:
        self.add(fd, transport)

    def __getitem__(self, fd: int) -> Any:
        found = self.get(fd)
        if found is None:
            raise KeyError(fd)
        return found

    def __delitem__(self, fd: int) -> None:
        del self._known[fd]
