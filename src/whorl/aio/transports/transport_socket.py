"""The socket that programs get from a transport; it notes when a program takes the descriptor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whorl.aio.interop import at_import

if TYPE_CHECKING:
    import socket

    from whorl.core.loop.write_coalescer import WriteCoalescer

# The `_sock` attribute of asyncio's class, without the property by which programs read it here.
_socket_of = vars(at_import.TransportSocket)["_sock"].__get__
_keep = vars(at_import.TransportSocket)["_sock"].__set__


class TransportSocket(at_import.TransportSocket):
    """A view of a connection's socket (asyncio: ``asyncio.trsock.TransportSocket``).

    A program that has the descriptor may send by it. So the view sends held writes before it gives the
    descriptor away, and the connection holds nothing from then on. Names and options are read and set without
    that. Any other method of asyncio's class, now or in a later Python, counts as giving the descriptor away.
    """

    __slots__ = ("_collector", "_family", "is_handed_out")

    def __init__(self, sock: socket.socket, collector: WriteCoalescer) -> None:
        _keep(self, sock)
        self._collector = collector
        self.is_handed_out: bool = False
        self._family: int | None = None

    @property
    def _sock(self) -> Any:
        self.is_handed_out = True
        self._collector.send_all()
        return _socket_of(self)

    def __repr__(self) -> str:
        return repr(at_import.TransportSocket(_socket_of(self)))

    @property
    def family(self) -> int:
        """The address family."""
        family = self._family
        if family is None:  # Python's socket makes it anew each time, and web clients ask often.
            family = self._family = _socket_of(self).family
        return family

    @property
    def type(self) -> int:
        """The kind of socket."""
        return _socket_of(self).type  # type: ignore[no-any-return]

    @property
    def proto(self) -> int:
        """The number of the protocol."""
        return _socket_of(self).proto  # type: ignore[no-any-return]

    def get_inheritable(self) -> bool:
        """Return whether started programs inherit the descriptor."""
        return _socket_of(self).get_inheritable()  # type: ignore[no-any-return]

    def getpeername(self) -> Any:
        """Return the peer's address."""
        return _socket_of(self).getpeername()

    def getsockname(self) -> Any:
        """Return the socket's local address."""
        return _socket_of(self).getsockname()

    def getsockopt(self, *args: Any) -> Any:
        """Return the value of an option (``socket.socket.getsockopt``)."""
        return _socket_of(self).getsockopt(*args)

    def setsockopt(self, *args: Any) -> None:
        """Set an option (``socket.socket.setsockopt``)."""
        _socket_of(self).setsockopt(*args)
