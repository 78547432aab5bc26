"""The kernel's calls for datagrams: messages that keep their bounds and carry addresses.

The compiled code writes and reads the addresses of IPv4, IPv6 and UNIX sockets itself and moves several
datagrams in one call (recvmmsg, sendmmsg). It calls Python's own socket object for every other family. It
does so, too, for an address that it does not understand at once (a name, a wrong type). So the results and
the errors are Python's. Uncompiled, it always calls the socket object.
"""

from __future__ import annotations

import errno
import socket
import struct
from typing import TYPE_CHECKING, Any

from whorl.core import limits
from whorl.core.kernel.errors import negative_errno
from whorl.core.kernel.message_buffers import MessageMemory
from whorl.core.kernel.socket_addresses import AddressBook
from whorl.core.kernel.socket_overrides import overrides_method

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

#: The families whose addresses the compiled code knows.
KNOWN_FAMILIES = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)

if not cython.compiled:

    def receive_datagrams(calls: DatagramCalls, sock: DatagramSocket, into: list[Any], limit: int) -> int:
        """Receive the waiting datagrams, up to `limit`."""
        received = 0
        limit = 1 if sock.overrides_methods else limit
        while received < limit:
            result = receive_by_object(calls, sock, into)
            if result < 0:
                return received or result
            received += 1
        return received

    def send_one(calls: DatagramCalls, sock: DatagramSocket, data: ReadableBuffer, address: Any) -> int:
        """Send one datagram."""
        return send_by_object(sock, data, address)

    def send_queued(calls: DatagramCalls, sock: DatagramSocket, queue: list[Any], first: int) -> int:
        """Send the datagrams from `first` on until one is refused."""
        if not 0 <= first < len(queue):
            return -errno.EINVAL
        sent = 0
        for datagram in queue[first:]:
            try:
                result = send_by_object(sock, datagram[0], datagram[1])
            except BaseException:
                if sent:
                    break
                raise
            if result < 0:
                return sent or result
            sent += 1
        return sent


def receive_by_object(calls: DatagramCalls, sock: DatagramSocket, into: list[Any]) -> int:
    """Receive one datagram by the socket object; return 1 or the negative error number."""
    received = 1
    if sock.overrides_methods:
        try:
            data, address = sock.sock.recvfrom(limits.READ_SIZE)
        except (BlockingIOError, InterruptedError):
            received = -errno.EAGAIN
        else:
            into.append(data)
            into.append(address)
        return received
    if calls._block is None:
        calls._block = bytearray(limits.READ_SIZE)
    try:
        size, address = sock.sock.recvfrom_into(calls._block)
    except OSError as error:
        received = negative_errno(error)
    else:
        into.append(memoryview(calls._block)[:size].tobytes())
        into.append(address)
    return received


def send_by_object(sock: DatagramSocket, data: ReadableBuffer, address: Any) -> int:
    """Send one datagram by the socket object; return its size or the negative error number."""
    try:
        sent: int = sock.sock.send(data) if address is None else sock.sock.sendto(data, address)
    except OSError as error:
        if sock.overrides_methods and not isinstance(error, (BlockingIOError, InterruptedError)):
            raise
        sent = negative_errno(error)
    else:
        if sock.overrides_methods:
            sent = len(data)  # type: ignore[arg-type]
    return sent


class DatagramSocket:
    """A socket as the data path of datagrams needs it: the object, its descriptor and its family.

    If the object overrides methods of Python's class, they are always called, and their errors are raised.
    """

    def __init__(self, sock: Any) -> None:
        self.sock: Any = sock
        self.fd: Any = sock.fileno()
        self.overrides_methods: bool = overrides_method(sock, "recvfrom", "send", "sendto")
        is_known = sock.family in KNOWN_FAMILIES and not self.overrides_methods
        self.family = sock.family if is_known else 0
        self.known: Any = None  # what a simulated kernel knows of the socket


class DatagramCalls(MessageMemory):
    """The part of the kernel for datagrams. The rules are those of `Kernel`."""

    def __init__(self) -> None:
        MessageMemory.__init__(self)
        self._addresses: AddressBook | None = None  # made when it is needed
        self._block: bytearray | None = None  # the memory for received datagrams; made when it is needed
        self._receives_many = True  # whether this kernel has recvmmsg, as far as is known
        self._sends_many = True  # the same for sendmmsg

    # The data path.

    def recv_datagrams(self, sock: DatagramSocket, into: list[Any], limit: int) -> int:
        """Receive up to `limit` datagrams; for each, append its bytes, and then its sender's address.

        Return their number (man 2 recvmmsg). The longest datagram of UDP fits. Other datagrams are
        cut to READ_SIZE, as in asyncio.
        """
        return receive_datagrams(self, sock, into, limit)

    def send_datagram(self, sock: DatagramSocket, data: ReadableBuffer, address: Any) -> int:
        """Send one datagram, to the connected peer if `address` is None; return its size (man 2 sendto)."""
        return send_one(self, sock, data, address)

    def send_datagrams(self, sock: DatagramSocket, queue: list[Any], first: int) -> int:
        """Send datagrams of a queue from `first` on; return how many were sent (man 2 sendmmsg).

        Each entry begins with its data, a bytes object, and its address or None. Only an error of the first
        datagram is returned or raised.
        """
        return send_queued(self, sock, queue, first)

    def receives_many(self) -> bool:
        """Return whether several datagrams are received in one call, as far as is known."""
        return cython.compiled and self._receives_many

    # By socket object.

    def recvfrom(self, sock: Any, size: int) -> tuple[bytes, Any] | int:
        """Receive at most `size` bytes, and their sender's address (man 2 recvfrom)."""
        try:
            received: tuple[bytes, Any] | int = sock.recvfrom(size)
        except OSError as error:
            received = negative_errno(error)
        return received

    def recvfrom_into(self, sock: Any, buffer: WriteableBuffer, size: int) -> tuple[int, Any] | int:
        """Receive at most `size` bytes into a buffer; return their number and their sender's address.

        Raises ValueError if the buffer is smaller.
        """
        try:
            received: tuple[int, Any] | int = sock.recvfrom_into(buffer, size)
        except OSError as error:
            received = negative_errno(error)
        return received

    def sendto(self, sock: Any, data: ReadableBuffer, address: Any) -> int:
        """Send to an address of any kind; return how many bytes were sent (man 2 sendto)."""
        try:
            sent: int = sock.sendto(data, address)
        except OSError as error:
            sent = negative_errno(error)
        return sent

    def receive_error(self, sock: Any) -> tuple[int, Any] | int:
        """Return the error number and the address of an earlier lost datagram (man 7 ip, IP_RECVERR)."""
        try:
            _, reports, _, address = sock.recvmsg(0, 512, socket.MSG_ERRQUEUE)
        except OSError as error:
            answer: tuple[int, Any] | int = negative_errno(error)
        else:
            codes = (struct.unpack_from("=I", data)[0] for _, _, data in reports if len(data) >= 4)
            answer = next(codes, 0), address
        return answer

    def disconnect(self, sock: Any) -> int:
        """Let a connected datagram socket send to any address again (man 2 connect, AF_UNSPEC)."""
        from whorl.core.kernel import libc

        nowhere = bytes(128)  # AF_UNSPEC is 0
        code: int = libc.call("connect", sock.fileno(), nowhere, 16)
        return code

    def interface_index(self, name: str) -> int:
        """Return the number of a network interface, or the negative error number (man 3 if_nametoindex)."""
        try:
            index = int(name) if name.isdecimal() else socket.if_nametoindex(name)
        except OSError:
            index = -errno.ENODEV
        return index
