"""UDP: datagrams with libuv's callbacks.

As with streams, a send never ends inside the call that began it. If the kernel took the datagram at once,
the send waits in the queue `_completed` for its callback. When the handle is closed, sends in flight end with
ECANCELED, before the callback of `close`.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from whorl.core import states
from whorl.core.callback import call_in_context, current_context
from whorl.core.handle import Handle
from whorl.core.kernel.errors import check_result, os_error
from whorl.handles.addresses import family_of, family_of_host
from whorl.handles.datagrams.engine import Datagrams
from whorl.handles.datagrams.multicast import membership, outgoing_interface, source_membership
from whorl.handles.requests import RequestQueue, StreamRequest, contiguous

if TYPE_CHECKING:
    from typing import Self, TypeAlias

    from _typeshed import ReadableBuffer as Buffer

    from whorl.core.loop.loop import Loop
    from whorl.handles.datagrams.engine import Queued

    Received: TypeAlias = Callable[[Any, bytes, Any, OSError | None], object]


_INTERNET = (socket.AF_INET, socket.AF_INET6)
_IP_RECVERR, _IPV6_RECVERR = 11, 25  # Linux's numbers, which Python names only since 3.14

#: The most reports of lost datagrams that one event may bring.
_REPORTS_PER_EVENT = 32


class UdpSend(StreamRequest):
    """A datagram on its way to the kernel (libuv: ``uv_udp_send_t``)."""

    def __init__(self, handle: Any, callback: Callable[[Any, OSError | None], object] | None) -> None:
        StreamRequest.__init__(self, handle, callback)
        self._size = 0  # bytes


class UDP(Datagrams):
    """A UDP socket (libuv: ``uv_udp_t``).

    Addresses are numeric, as Python writes them: ``(host, port)``, for IPv6 with flow information
    and scope if need be. The socket is made by the first call that needs it, or at once for
    `family`. Unless `recvmmsg` is false, several datagrams are received in one system call.

    The handle is active while it receives; its requests keep the loop alive by themselves.
    """

    def __init__(self, loop: Loop, family: int = 0, *, recvmmsg: bool = True) -> None:
        if family not in (0, *_INTERNET):
            raise os_error(errno.EINVAL)
        super().__init__(loop)
        self._connected = False
        self._reports_errors = False  # whether the kernel queues reports of lost datagrams
        self._receive_callback: Any = None
        self._receive_context: Any = None
        self._completed = RequestQueue()  # finished sends whose callbacks have not run
        self._send_count = 0  # requests whose callbacks have not been called yet ...
        self._send_size = 0  # ... and their bytes
        if not recvmmsg:
            self._batch = 1
        if family:
            try:
                self._ensure_socket(family)
            except BaseException:
                self.close()
                raise

    # Sockets and addresses.

    def open(self, sock: socket.socket | int) -> None:
        """Take over a datagram socket, or its descriptor; the handle will close it.

        A socket object gives its descriptor up. Raises OSError: EBUSY if the handle has a socket,
        EEXIST if another handle of the loop watches the descriptor.
        """
        self._check_open()
        if self._sock is not None:
            raise os_error(errno.EBUSY)
        fd = sock if isinstance(sock, int) else sock.fileno()
        if self._poller.find(fd) is not None:
            raise os_error(errno.EEXIST)
        adopted = check_result(self._kernel.adopt_socket(fd))
        if not isinstance(sock, int):
            sock.detach()
        self._attach(adopted)
        self._connected = not isinstance(self._kernel.peer_name(adopted), int)

    def bind(
        self,
        address: tuple[Any, ...],
        *,
        ipv6only: bool = False,
        reuseaddr: bool = False,
        reuseport: bool = False,
        recverr: bool = False,
    ) -> None:
        """Give the socket its address.

        `ipv6only`: no IPv4. `reuseaddr`: take an address of another socket, which then receives no more.
        `reuseport`: share it; each socket gets a part of the datagrams. `recverr`: report lost datagrams to
        the callback of `recv_start`, with the address they were sent to.
        """
        self._check_open()
        family = family_of(address)
        if ipv6only and family != socket.AF_INET6:
            raise os_error(errno.EINVAL)
        self._ensure_socket(family)
        if recverr:
            is_ipv6 = family == socket.AF_INET6
            self._set(
                (socket.IPPROTO_IPV6, _IPV6_RECVERR, 1) if is_ipv6 else (socket.IPPROTO_IP, _IP_RECVERR, 1)
            )
            self._reports_errors = True
        if reuseaddr:
            self._set((socket.SOL_SOCKET, socket.SO_REUSEADDR, 1))
        if reuseport:
            self._set((socket.SOL_SOCKET, socket.SO_REUSEPORT, 1))
        if ipv6only:
            self._set((socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1))
        check_result(self._kernel.bind(self._sock, address))

    def connect(self, address: tuple[Any, ...]) -> None:
        """Send to this address and receive from it only. Raises OSError (EISCONN) if it is connected."""
        self._check_open()
        if self._connected:
            raise os_error(errno.EISCONN)
        self._ensure_socket(family_of(address))
        check_result(self._kernel.connect(self._sock, address))
        self._connected = True

    def disconnect(self) -> None:
        """Undo `connect`. Raises OSError (ENOTCONN) if it is not connected."""
        self._check_open()
        if not self._connected:
            raise os_error(errno.ENOTCONN)
        check_result(self._kernel.disconnect(self._sock))
        self._connected = False

    def getsockname(self) -> Any:
        """Return the socket's own address."""
        self._check_socket()
        return check_result(self._kernel.socket_name(self._sock))

    def getpeername(self) -> Any:
        """Return the address of the connected peer; raise OSError (ENOTCONN) if there is none."""
        self._check_socket()
        return check_result(self._kernel.peer_name(self._sock))

    def _check_socket(self) -> None:
        if self._sock is None or self._handle_state != states.OPEN:
            raise os_error(errno.EBADF)

    def _ensure_socket(self, family: int) -> None:
        if self._sock is None:
            self._attach(check_result(self._kernel.open_socket(family, socket.SOCK_DGRAM, 0)))

    # Receiving.

    def recv_start(self, callback: Callable[[Self, bytes, Any, OSError | None], object]) -> None:
        """Call `callback(udp, data, address, error)` for each datagram.

        With an error, `data` is empty, and receiving goes on. A handle without an address gets a
        port of the system's choice. Raises OSError (EALREADY) if it receives already.
        """
        self._check_open()
        if not callable(callback):
            raise TypeError(f"a callable object was expected by recv_start(), got {callback!r}")
        if self._reading:
            raise os_error(errno.EALREADY)
        if self._sock is None:
            self.bind(("0.0.0.0", 0))
        self._receive_callback = callback
        self._receive_context = current_context()
        try:
            self._start_reading()
        except BaseException:
            self._reading = False
            raise
        self._activate()

    def recv_stop(self) -> None:
        """Stop receiving; datagrams that arrive wait in the kernel. Does nothing if it does not receive."""
        if self._reading:
            self._stop_reading()
            self._deactivate()

    def using_recvmmsg(self) -> bool:
        """Return whether several datagrams are received in one system call."""
        return self._batch > 1 and self._kernel.receives_many()

    def _datagram_arrived(self, data: bytes, address: Any) -> None:
        call_in_context(self._receive_context, self._receive_callback, (self, data, address, None))

    def _receive_failed(self, code: int) -> None:
        self._report_error(code, None)

    def _report_error(self, code: int, address: Any) -> None:
        call_in_context(self._receive_context, self._receive_callback, (self, b"", address, os_error(code)))

    def _take_reports(self) -> None:
        """Hand over the reports of lost datagrams; the kernel signals an error until they are taken."""
        for _ in range(_REPORTS_PER_EVENT):
            report = self._kernel.receive_error(self._sock)
            if isinstance(report, int):
                break
            self._report_error(report[0], report[1])
            if not self._reading:
                break

    # Sending.

    def send(
        self,
        data: Buffer,
        address: tuple[Any, ...] | None = None,
        callback: Callable[[UdpSend, OSError | None], object] | None = None,
    ) -> UdpSend:
        """Send a datagram; call `callback(request, error)` when the kernel has taken or refused it.

        `address` is None if and only if the handle is connected; else OSError (EISCONN,
        EDESTADDRREQ) is raised. Mutable data is copied unless it is sent at once.
        """
        self._prepare(address)
        chunk = contiguous(data)
        request = new_send(self, callback)
        result = -errno.EAGAIN
        if not self._queue:
            self._held.push_all()
            result = self._kernel.send_datagram(self._socket, chunk, address)
        request._begin()
        request._size = len(chunk)
        self._send_count += 1
        self._send_size += request._size
        if result >= 0:
            self._count_sent(request._size)
        if result == -errno.EAGAIN or result == -errno.EINTR or result == -errno.ENOBUFS:
            self._enqueue(chunk, address, request)
        else:
            self._completed.push_completed(request, -result if result < 0 else 0)
            self._run_again()
        return request

    def try_send(self, data: Buffer, address: tuple[Any, ...] | None = None) -> int:
        """Send a datagram at once; return its size in bytes.

        Raises BlockingIOError if the kernel does not take it or sends are in flight.
        """
        self._prepare(address)
        if self._send_count:
            raise os_error(errno.EAGAIN)
        self._held.push_all()
        sent = int(check_result(self._kernel.send_datagram(self._socket, contiguous(data), address)))
        self._count_sent(sent)
        return sent

    def try_send2(self, datagrams: Sequence[tuple[Buffer, tuple[Any, ...] | None]]) -> int:
        """Send several datagrams at once, each with its address, in as few system calls as possible.

        Return how many were sent; raise the error of the first one if none was. It is BlockingIOError
        if the kernel takes none or sends are in flight (libuv: ``uv_udp_try_send2``).
        """
        for _, address in datagrams:
            self._prepare(address)
        if self._send_count:
            raise os_error(errno.EAGAIN)
        queue = [(bytes(contiguous(data)), address) for data, address in datagrams]
        done = 0
        self._held.push_all()
        while done < len(queue):
            sent = self._kernel.send_datagrams(self._socket, queue, done)
            if sent < 0:
                if not done:
                    raise os_error(sent)
                break
            self._count_sent(sum(len(data) for data, _ in queue[done : done + sent]))
            done += sent
        return done

    @property
    def send_queue_size(self) -> int:
        """The number of bytes in sends whose callbacks have not been called."""
        return self._send_size

    @property
    def send_queue_count(self) -> int:
        """The number of sends whose callbacks have not been called."""
        return self._send_count

    def _prepare(self, address: tuple[Any, ...] | None) -> None:
        """Check the address of a datagram, and make the socket if there is none."""
        if self._handle_state != states.OPEN:
            raise os_error(errno.EBADF)
        if address is None:
            if not self._connected:
                raise os_error(errno.EDESTADDRREQ)
            return
        if self._connected:
            raise os_error(errno.EISCONN)
        if self._sock is None or self._sock.family in _INTERNET:
            family = family_of(address)
            self._ensure_socket(family)
            if family != self._sock.family:
                raise os_error(errno.EAFNOSUPPORT)

    def _datagram_sent(self, datagram: Queued) -> None:
        self._completed.push_completed(datagram[2], 0)

    def _datagram_failed(self, datagram: Queued, code: int) -> None:
        self._completed.push_completed(datagram[2], code)
        self._run_again()

    def _datagram_refused(self, datagram: Queued, error: BaseException) -> None:
        self._completed.push_completed(datagram[2], errno.EINVAL)
        self._run_again()

    def _tries_again(self, code: int) -> bool:
        return code == errno.ENOBUFS

    def _drop_unsent(self) -> None:
        for datagram in self._queue[self._first :]:
            self._completed.push_completed(datagram[2], errno.ECANCELED)
        Datagrams._drop_unsent(self)

    def _run_completed(self) -> None:
        """Call back for the sends that are finished by now."""
        for _ in range(self._completed._size):
            if not self._completed._size:
                break
            request: Any = self._completed.pop()
            self._send_count -= 1
            self._send_size -= request._size
            request._finish(request._code)

    # Options.

    def set_membership(self, group: str, interface: str | None = None, *, join: bool = True) -> None:
        """Join or leave a multicast group, at the interface with this address.

        For IPv6 the interface is the zone of an address: ``"::%eth0"``.
        """
        self._check_open()
        option = membership(group, interface, join, self._kernel.interface_index)
        self._join(group, option)

    def set_source_membership(
        self, group: str, interface: str | None, source: str, *, join: bool = True
    ) -> None:
        """Join or leave a multicast group for the datagrams of one sender."""
        self._check_open()
        option = source_membership(group, interface, source, join, self._kernel.interface_index)
        self._join(group, option)

    def _join(self, group: str, option: Any) -> None:
        family = family_of_host(group)
        if self._sock is None:
            self.bind(("0.0.0.0" if family == socket.AF_INET else "::", 0), reuseaddr=True)
        self._set(option)

    def set_multicast_loop(self, enable: bool) -> None:
        """Set whether datagrams to a group come back to this machine's own members."""
        self._set(self._choose(socket.IP_MULTICAST_LOOP, socket.IPV6_MULTICAST_LOOP, int(bool(enable))))

    def set_multicast_ttl(self, ttl: int) -> None:
        """Set how many hops datagrams to a group may make, 1 to 255."""
        self._set(self._choose(socket.IP_MULTICAST_TTL, socket.IPV6_MULTICAST_HOPS, checked_ttl(ttl)))

    def set_multicast_interface(self, interface: str | None) -> None:
        """Set the interface by which datagrams to a group leave; None: the system chooses."""
        self._check_socket()
        self._set(outgoing_interface(self._sock.family, interface, self._kernel.interface_index))

    def set_broadcast(self, enable: bool) -> None:
        """Set whether datagrams may go to broadcast addresses."""
        self._set((socket.SOL_SOCKET, socket.SO_BROADCAST, int(bool(enable))))

    def set_ttl(self, ttl: int) -> None:
        """Set how many hops datagrams may make, 1 to 255."""
        self._set(self._choose(socket.IP_TTL, socket.IPV6_UNICAST_HOPS, checked_ttl(ttl)))

    def send_buffer_size(self, size: int | None = None) -> int:
        """Return the size of the kernel's buffer for sending, after setting it unless `size` is None."""
        return self._buffer_size(socket.SO_SNDBUF, size)

    def receive_buffer_size(self, size: int | None = None) -> int:
        """Return the size of the kernel's buffer for receiving, after setting it unless `size` is None."""
        return self._buffer_size(socket.SO_RCVBUF, size)

    def _buffer_size(self, option: int, size: int | None) -> int:
        self._check_socket()
        if size is not None:
            self._set((socket.SOL_SOCKET, option, size))
        return int(check_result(self._kernel.get_option(self._sock, socket.SOL_SOCKET, option)))

    def _choose(self, ipv4: int, ipv6: int, value: int) -> tuple[int, int, int]:
        """Return the option that means the same in the socket's family."""
        self._check_socket()
        if self._sock.family == socket.AF_INET6:
            return socket.IPPROTO_IPV6, ipv6, value
        return socket.IPPROTO_IP, ipv4, value

    def _set(self, option: Any) -> None:
        self._check_socket()
        check_result(self._kernel.set_option(self._sock, *option))

    # Events, and the end.

    def _on_events(self, seen: int) -> None:
        try:
            if seen & states.ERROR and self._reports_errors and self._reading:
                self._take_reports()
            if self._handle_state == states.OPEN:
                Datagrams._on_events(self, seen)
            if self._handle_state == states.OPEN:
                self._run_completed()
        except BaseException:
            # The rest must not wait for an event that may never come.
            if self._handle_state == states.OPEN:
                self._run_again()
            raise

    def _finish_close(self) -> None:
        try:
            self._run_completed()
        except BaseException:
            self._loop._handle_closing(self)  # the rest comes in the next closing phase
            raise
        self._receive_callback = None
        Handle._finish_close(self)


def checked_ttl(ttl: int) -> int:
    """Return a number of hops; raise OSError (EINVAL) unless it is from 1 to 255."""
    if not 1 <= ttl <= 255:
        raise os_error(errno.EINVAL)
    return ttl


def new_send(handle: UDP, callback: Any) -> UdpSend:
    """Return a `UdpSend` that does not keep the loop alive yet, without the cost of calling its class."""
    request = UdpSend.__new__(UdpSend)
    request._set_up(handle, callback)
    request._size = 0
    return request
