"""The socket that programs get from a transport."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from whorl.aio.interop import at_import

if TYPE_CHECKING:
    from whorl.core.loop.held_writes import HeldWrites

IPPROTO_TCP = socket.IPPROTO_TCP
TCP_CORK = socket.TCP_CORK
TCP_NODELAY = socket.TCP_NODELAY


class TransportSocket(at_import.TransportSocket):
    """A view of a connection's socket (asyncio: ``asyncio.trsock.TransportSocket``).

    Web clients ask for names and kinds of all their connections at each request. So these come from memory.
    The peer's name does until the loop has noticed that the peer is gone.
    """

    __slots__ = ("_family", "_held", "_is_tuned", "_peername", "_proto", "_type")

    def __init__(self, sock: socket.socket, held: HeldWrites) -> None:
        super().__init__(sock)
        self._held = held
        self._is_tuned = False  # whether the program decides itself when small packets leave
        self._peername: Any = None  # None: the system is asked
        self._family: int | None = None
        self._type: int | None = None
        self._proto: int | None = None

    # Python's socket makes members of enumerations each time.

    @property
    def family(self) -> int:
        """The address family."""
        if self._family is None:
            self._family = super().family
        return self._family

    @property
    def type(self) -> int:
        """The kind of socket."""
        if self._type is None:
            self._type = super().type
        return self._type

    @property
    def proto(self) -> int:
        """The number of the protocol."""
        if self._proto is None:
            self._proto = super().proto
        return self._proto

    def getpeername(self) -> Any:
        """Return the peer's address. Raises OSError if the peer is gone."""
        return super().getpeername() if self._peername is None else self._peername

    def setsockopt(self, *args: Any) -> None:
        """Set an option (``socket.socket.setsockopt``)."""
        if args and args[0] == IPPROTO_TCP:
            self._held.push_all()
            self._is_tuned |= args[1:2] == (TCP_CORK,) or (args[1:2] == (TCP_NODELAY,) and args[2:] != (1,))
        super().setsockopt(*args)
