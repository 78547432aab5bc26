"""The socket that programs are given of a transport, which notes when its descriptor is handed out."""

from __future__ import annotations

from asyncio import trsock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

    from whorl.core.loop.write_coalescer import WriteCoalescer

# The attribute of asyncio's class, past the one by which programs read it here.
_socket_of = vars(trsock.TransportSocket)["_sock"].__get__
_keep = vars(trsock.TransportSocket)["_sock"].__set__


class TransportSocket(trsock.TransportSocket):
    """A view of a connection's socket (asyncio: ``asyncio.trsock.TransportSocket``).

    A program that has the descriptor may send by it. So what the loop holds leaves before it is handed out,
    and the connection holds nothing from then on. Names and options are read and set without that. Whatever
    else asyncio's class does, now or in a Python to come, counts as handing it out.
    """

    __slots__ = ("_collector", "is_handed_out")

    def __init__(self, sock: socket.socket, collector: WriteCoalescer) -> None:
        _keep(self, sock)
        self._collector = collector
        self.is_handed_out = False

    @property
    def _sock(self) -> Any:
        self.is_handed_out = True
        self._collector.send_all()
        return _socket_of(self)

    def __repr__(self) -> str:
        return repr(trsock.TransportSocket(_socket_of(self)))

    @property
    def family(self) -> int:
        """The address family."""
        return _socket_of(self).family  # type: ignore[no-any-return]

    @property
    def type(self) -> int:
        """The kind of socket."""
        return _socket_of(self).type  # type: ignore[no-any-return]

    @property
    def proto(self) -> int:
        """The number of the protocol."""
        return _socket_of(self).proto  # type: ignore[no-any-return]

    def get_inheritable(self) -> bool:
        """Return whether programs that are started get the descriptor."""
        return _socket_of(self).get_inheritable()  # type: ignore[no-any-return]

    def getpeername(self) -> Any:
        """The peer's address."""
        return _socket_of(self).getpeername()

    def getsockname(self) -> Any:
        """The socket's own address."""
        return _socket_of(self).getsockname()

    def getsockopt(self, *args: Any) -> Any:
        """An option (``socket.socket.getsockopt``)."""
        return _socket_of(self).getsockopt(*args)

    def setsockopt(self, *args: Any) -> None:
        """Set an option (``socket.socket.setsockopt``)."""
        _socket_of(self).setsockopt(*args)
