"""The table of transports by descriptor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if not cython.compiled:
    import weakref

    weak_reference = weakref.ref


class TransportTable:
    """The open transports of a loop's sockets, by descriptor.

    The references are weak, so a forgotten transport still warns that it was not closed.
    """

    def __init__(self) -> None:
        self._references: list[Any] = []  # by descriptor, from the lowest one on that was recorded
        self._first = 0  # this one
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, fd: int, transport: Any) -> None:
        """Record that a transport uses a descriptor; a closed one (-1) is not recorded."""
        if fd < 0:
            return
        if not self._references:
            self._first = fd
        elif fd < self._first:
            self._references[:0] = [None] * (self._first - fd)
            self._first = fd
        place = fd - self._first
        missing = place + 1 - len(self._references)
        if missing > 0:
            self._references.extend([None] * missing)
        if self._references[place] is None:
            self._count += 1
        self._references[place] = weak_reference(transport)

    def discard(self, fd: int, transport: Any) -> None:
        """Record that a transport no longer uses a descriptor; another transport may use it already."""
        found = self.get(fd)
        if found is None or found is transport:
            self._forget(fd)

    def get(self, fd: int) -> Any:
        """Return the transport of a descriptor, or None."""
        place = fd - self._first
        if fd < 0 or place < 0 or place >= len(self._references):
            return None
        known = self._references[place]
        return None if known is None else known()

    def _forget(self, fd: int) -> None:
        place = fd - self._first
        if 0 <= place < len(self._references) and self._references[place] is not None:
            self._references[place] = None
            self._count -= 1

    # asyncio's transports, which may run on our loop too, ask for it like this.

    def __setitem__(self, fd: int, transport: Any) -> None:
        self.add(fd, transport)

    def __getitem__(self, fd: int) -> Any:
        found = self.get(fd)
        if found is None:
            raise KeyError(fd)
        return found

    def __delitem__(self, fd: int) -> None:
        self._forget(fd)

    def __contains__(self, fd: object) -> bool:
        return isinstance(fd, int) and self.get(fd) is not None

    def __iter__(self) -> Iterator[int]:
        return iter(self.keys())

    def keys(self) -> list[int]:
        """Return the descriptors."""
        return [fd for fd, _ in self.items()]

    def values(self) -> list[Any]:
        """Return the transports; any thread may call this."""
        found = [known() for known in list(self._references) if known is not None]
        return [transport for transport in found if transport is not None]

    def items(self) -> list[tuple[int, Any]]:
        """Return the descriptors with their transports."""
        first = self._first
        known = enumerate(list(self._references), first)
        found = [(fd, reference()) for fd, reference in known if reference is not None]
        return [(fd, transport) for fd, transport in found if transport is not None]

    def pop(self, fd: int, default: Any = None) -> Any:
        """Remove a transport and return it; return the default if there is none."""
        found = self.get(fd)
        self._forget(fd)
        return default if found is None else found
