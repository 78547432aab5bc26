"""TCP: connections, and sockets that listen for them."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.core.kernel.errors import check_result, os_error
from whorl.handles.addresses import family_of
from whorl.handles.requests import Connect
from whorl.handles.streams.stream_handle import StreamHandle

if TYPE_CHECKING:
    from typing import Self

    from whorl.core.loop.loop import Loop

_RESET = struct.pack("ii", 1, 0)  # struct linger: linger for 0 seconds, which means a reset


class TCP(StreamHandle):
    """A TCP socket, connected or listening (libuv: ``uv_tcp_t``).

    Addresses are numeric, as Python writes them: ``(host, port)``, for IPv6 with flow information
    and scope if need be. The socket is made when the first address tells its family.
    """

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self._nodelay = False
        self._keepalive: tuple[int, int, int] | None = None

    def open(self, sock: socket.socket | int) -> None:
        """Take over a connected or listening socket, or its descriptor; the handle will close it.

        A socket object gives its descriptor up. Raises OSError: EBUSY if the handle has a socket,
        EEXIST if another handle of the loop watches the descriptor.
        """
        self._check_open()
        self._check_unused()
        fd = sock if isinstance(sock, int) else sock.fileno()
        self._check_free(fd)
        adopted = check_result(self._kernel.adopt_socket(fd))
        if not isinstance(sock, int):
            sock.detach()
        self._attach_socket(adopted)
        self._begin(True, True)

    def bind(self, address: tuple[Any, ...], *, ipv6only: bool = False, reuseport: bool = False) -> None:
        """Give the socket its address; `ipv6only`: no IPv4; `reuseport`: share it with other sockets.

        An address in use is an error here (libuv reports it when the socket listens or connects).
        """
        self._check_open()
        family = family_of(address)
        if ipv6only and family != socket.AF_INET6:
            raise os_error(errno.EINVAL)
        self._ensure_socket(family)
        self._set(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            self._set(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(ipv6only))
        if reuseport:
            self._set(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        check_result(self._kernel.bind(self._sock, address))

    def listen(self, backlog: int, on_connection: Callable[[Self, OSError | None], object]) -> None:
        """Call `on_connection(server, error)` for each connection, which `accept` then takes.

        While a connection is not accepted, no other is taken. When descriptors or memory run out,
        the callback gets that error, and the handle rests for a while before it goes on.
        """
        self._check_open()
        self._ensure_socket(socket.AF_INET)
        self._begin_listen(backlog, on_connection)

    def connect(
        self, address: tuple[Any, ...], on_connect: Callable[[Connect, OSError | None], object] | None = None
    ) -> Connect:
        """Connect the socket; call `on_connect(request, error)` when that is over.

        Raises OSError if the system refuses at once, EALREADY while the handle is connecting, EISCONN once it
        is connected. The callback always gets the error of a refused connection.
        """
        self._check_open()
        self._check_unconnected()
        self._ensure_socket(family_of(address))
        self._held.push_all()
        code = -self._kernel.connect(self._sock, address)
        if code in (0, errno.EINPROGRESS, errno.EINTR):
            return self._begin_connect(on_connect, 0)
        if code == errno.ECONNREFUSED:
            return self._begin_connect(on_connect, code)
        raise os_error(code)

    def nodelay(self, enable: bool = True) -> None:
        """Send small writes at once (TCP_NODELAY); before there is a socket, as soon as there is one."""
        self._check_open()
        self._nodelay = bool(enable)
        if self._sock is not None:
            self._set(socket.IPPROTO_TCP, socket.TCP_NODELAY, int(enable))

    def keepalive(self, enable: bool = True, idle: int = 60, interval: int = 1, count: int = 10) -> None:
        """Probe the peer after `idle` seconds of silence, every `interval` seconds, `count` times.

        Before there is a socket, this is done as soon as there is one.
        """
        self._check_open()
        if enable and min(idle, interval, count) < 1:
            raise os_error(errno.EINVAL)
        self._keepalive = (idle, interval, count) if enable else None
        if self._sock is not None:
            self._set(socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(enable))
            self._set_keepalive()

    def simultaneous_accepts(self, enable: bool) -> None:
        """Do nothing on this system (libuv: ``uv_tcp_simultaneous_accepts``)."""
        self._check_open()

    def getsockname(self) -> Any:
        """Return the socket's own address."""
        self._check_socket()
        return check_result(self._kernel.socket_name(self._sock))

    def getpeername(self) -> Any:
        """Return the peer's address."""
        self._check_socket()
        return check_result(self._kernel.peer_name(self._sock))

    def close_reset(self, callback: Callable[[Self], object] | None = None) -> None:
        """Close with a reset: unsent data is lost, and the peer gets ECONNRESET.

        Raises OSError (EINVAL) after `shutdown` while it is in flight.
        """
        self._check_socket()
        if self._shutdown_request is not None:
            raise os_error(errno.EINVAL)
        self._set(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.close(callback)

    def _check_socket(self) -> None:
        if self._sock is None or self.is_closing():
            raise os_error(errno.EBADF)

    def _ensure_socket(self, family: int) -> None:
        if self._sock is None:
            self._attach_socket(check_result(self._kernel.open_socket(family, socket.SOCK_STREAM, 0)))

    def _attach_socket(self, sock: Any) -> None:
        self._attach(sock, sock.fileno(), True, False)
        if self._nodelay:
            self._set(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._keepalive is not None:
            self._set(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._set_keepalive()

    def _set_keepalive(self) -> None:
        if self._keepalive is not None:
            idle, interval, count = self._keepalive
            self._set(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle)
            self._set(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval)
            self._set(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, count)

    def _set(self, level: int, option: int, value: Any) -> None:
        """Set a socket option."""
        check_result(self._kernel.set_option(self._sock, level, option, value))
