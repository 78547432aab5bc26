"""A kernel that refuses and cuts short on purpose, so that rare results become common.

It is the real kernel, and the real one may give each of its answers. Reads and writes move fewer bytes than
they could, or are refused with EAGAIN, EINTR or ENOBUFS. Accepting and opening fail as they do when
descriptors or memory run out. A seed decides about all of them.

A refusal keeps the kernel's promise: after EAGAIN, and after a transfer that was cut short, an event tells
when to go on. The edge of an edge-triggered watch has passed by then and would not come again, so the watch
is armed anew. After EINTR and ENOBUFS no event comes, as with the real kernel.
"""

from __future__ import annotations

import collections
import errno
import random
from typing import TYPE_CHECKING, Any, NamedTuple

from whorl.core.kernel.kernel import Kernel
from whorl.core.kernel.sockets import ACCEPTS_DESCRIPTORS

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import ReadableBuffer, WriteableBuffer

    from whorl.core.kernel.datagrams import DatagramSocket
    from whorl.core.kernel.kernel import EventBatch

_ADD, _DEL, _MOD = 1, 2, 3
_EPOLLET = 1 << 31

#: Cuts are as often below 2 bytes as between 64 and 128 KiB.
_LARGEST_CUT_BITS = 18


class FaultRates(NamedTuple):
    """The rate of each fault, a probability from 0 to 1 for each call that can have it."""

    short: float = 0.3  #: a read or write moves fewer bytes than it could
    again: float = 0.15  #: EAGAIN from a read, a write or accept
    interrupted: float = 0.05  #: EINTR from a read, a write, accept, connect or epoll_wait
    no_buffers: float = 0.03  #: ENOBUFS from a send
    exhausted: float = 0.05  #: EMFILE, ENFILE, ENOBUFS, ENOMEM from accept
    aborted: float = 0.05  #: ECONNABORTED from accept
    unopened: float = 0.0  #: EMFILE, ENFILE, ENOBUFS when a descriptor is opened
    refused: float = 0.0  #: ECONNREFUSED from receiving or sending a datagram
    reset: float = 0.0  #: ECONNRESET from a read or a send; the connection is lost


class FaultKernel(Kernel):
    """The real kernel, with faults. `injected` counts them, as ``"recv EAGAIN"`` and the like."""

    def __init__(self, seed: int, rates: FaultRates | None = None) -> None:
        super().__init__()
        self.accepts_descriptors = ACCEPTS_DESCRIPTORS
        self.rates: FaultRates = FaultRates() if rates is None else rates
        self.injected: collections.Counter[str] = collections.Counter()
        self._random = random.Random(seed)
        self._watches: dict[int, tuple[int, int, int]] = {}  # epoll, mask, generation by descriptor
        self._spared: set[int] = set()  # the loop's own wakeup, which must not fail

    # Data.

    def recv(self, fd: int, limit: int) -> bytes | int:
        """Receive, perhaps fewer bytes than there are."""
        return self._receive("recv", super().recv, fd, limit)

    def read(self, fd: int, limit: int) -> bytes | int:
        """Read, perhaps fewer bytes than there are."""
        return self._receive("read", super().read, fd, limit)

    def recv_into(self, fd: int, buffer: WriteableBuffer) -> int:
        """Receive, perhaps into the beginning of the buffer only."""
        return self._receive_into("recv_into", super().recv_into, fd, buffer)

    def read_into(self, fd: int, buffer: WriteableBuffer) -> int:
        """Read, perhaps into the beginning of the buffer only."""
        return self._receive_into("read_into", super().read_into, fd, buffer)

    def send(self, fd: int, data: ReadableBuffer, offset: int) -> int:
        """Send, perhaps not all of the data."""
        return self._transmit("send", super().send, fd, data, offset)

    def send_more(self, fd: int, data: ReadableBuffer, offset: int) -> int:
        """Send, perhaps not all of the data, and let the kernel hold it."""
        return self._transmit("send_more", super().send_more, fd, data, offset)

    def write(self, fd: int, data: ReadableBuffer, offset: int) -> int:
        """Write, perhaps not all of the data."""
        return self._transmit("write", super().write, fd, data, offset)

    def send_many(self, fd: int, chunks: list[bytes], first: int, offset: int) -> int:
        """Send, perhaps not all of the chunks and the last of them in part."""
        return self._transmit_many("send_many", super().send_many, fd, chunks, first, offset)

    def write_many(self, fd: int, chunks: list[bytes], first: int, offset: int) -> int:
        """Write, perhaps not all of the chunks and the last of them in part."""
        return self._transmit_many("write_many", super().write_many, fd, chunks, first, offset)

    def sendfile(self, target: int, source: int, offset: int, count: int) -> int:
        """Send from a file, perhaps less than there is room for."""
        code = self._refuse_transfer("sendfile", target)
        if code:
            return code
        cut = self._cut(count)
        if cut < count:
            self._note_short("sendfile", target)
        return super().sendfile(target, source, offset, cut)

    def receive_descriptors(self, sock: Any, limit: int) -> tuple[bytes, list[int], bool] | int:
        """Receive data and descriptors, perhaps less data than there is."""
        refused = self._refuse_transfer("receive_descriptors", sock.fileno())
        return refused or super().receive_descriptors(sock, self._cut(limit))

    def send_descriptors(self, sock: Any, data: ReadableBuffer, fds: list[int]) -> int:
        """Send descriptors, perhaps with less data than there is."""
        refused = self._refuse_transfer("send_descriptors", sock.fileno())
        if refused:
            return refused
        with memoryview(data) as whole, whole[: self._cut(len(whole))] as part:
            return super().send_descriptors(sock, part, fds)

    def _receive(
        self, name: str, call: Callable[[int, int], bytes | int], fd: int, limit: int
    ) -> bytes | int:
        if fd in self._spared:
            return call(fd, limit)
        code = self._refuse_transfer(name, fd)
        if code:
            return code
        cut = self._cut(limit)
        data = call(fd, cut)
        if cut < limit and isinstance(data, bytes) and len(data) == cut:
            self._note_short(name, fd)
        return data

    def _receive_into(
        self, name: str, call: Callable[[int, WriteableBuffer], int], fd: int, buffer: WriteableBuffer
    ) -> int:
        code = self._refuse_transfer(name, fd)
        if code:
            return code
        with memoryview(buffer) as whole, whole.cast("B") as view:
            cut = self._cut(len(view))
            with view[:cut] as part:
                size = call(fd, part)
            if size == cut < len(view):
                self._note_short(name, fd)
            return size

    def _transmit(
        self,
        name: str,
        call: Callable[[int, ReadableBuffer, int], int],
        fd: int,
        data: ReadableBuffer,
        offset: int,
    ) -> int:
        if fd in self._spared:
            return call(fd, data, offset)
        code = self._refuse_transfer(name, fd)
        if code:
            return code
        with memoryview(data) as whole:
            cut = self._cut(len(whole) - offset)
            if cut >= len(whole) - offset:
                return call(fd, data, offset)
            self._note_short(name, fd)
            with whole[offset : offset + cut] as part:
                return call(fd, part, 0)

    def _transmit_many(
        self,
        name: str,
        call: Callable[[int, list[bytes], int, int], int],
        fd: int,
        chunks: list[bytes],
        first: int,
        offset: int,
    ) -> int:
        code = self._refuse_transfer(name, fd)
        if code:
            return code
        parts = self._cut_chunks(chunks, first, offset)
        if parts is None:
            return call(fd, chunks, first, offset)
        self._note_short(name, fd)
        return call(fd, parts, 0, 0)

    # Datagrams.

    def recv_datagrams(self, sock: DatagramSocket, into: list[Any], limit: int) -> int:
        """Receive, perhaps fewer datagrams than there are; none is lost."""
        code = self._refuse_datagram("recv_datagrams", sock.fd)
        if code:
            return code
        received = super().recv_datagrams(sock, into, self._cut(limit))
        if 0 < received < limit:
            self._note_short("recv_datagrams", sock.fd)
        return received

    def send_datagram(self, sock: DatagramSocket, data: ReadableBuffer, address: Any) -> int:
        """Send a datagram, which is never cut short."""
        return self._refuse_datagram("send_datagram", sock.fd) or super().send_datagram(sock, data, address)

    def send_datagrams(self, sock: DatagramSocket, queue: list[Any], first: int) -> int:
        """Send, perhaps not all of the datagrams."""
        code = self._refuse_datagram("send_datagrams", sock.fd)
        if code:
            return code
        count = self._cut(len(queue) - first)
        if count < len(queue) - first:
            self._note_short("send_datagrams", sock.fd)
        return super().send_datagrams(sock, queue[first : first + count], 0)

    def recvfrom(self, sock: Any, size: int) -> tuple[bytes, Any] | int:
        """Receive a datagram."""
        return self._refuse_datagram("recvfrom", sock.fileno()) or super().recvfrom(sock, size)

    def recvfrom_into(self, sock: Any, buffer: WriteableBuffer, size: int) -> tuple[int, Any] | int:
        """Receive a datagram into a buffer."""
        code = self._refuse_datagram("recvfrom_into", sock.fileno())
        return code or super().recvfrom_into(sock, buffer, size)

    def sendto(self, sock: Any, data: ReadableBuffer, address: Any) -> int:
        """Send a datagram."""
        return self._refuse_datagram("sendto", sock.fileno()) or super().sendto(sock, data, address)

    def _refuse_datagram(self, name: str, fd: int) -> int:
        if self._happens(self.rates.refused):
            return self._refuse(name, errno.ECONNREFUSED)
        return self._refuse_transfer(name, fd)

    # Files. The answer may always be missing from memory.

    def status_now(self, path: str | bytes, follow: bool) -> Any:
        """Return the status of a file, unless it is not in memory."""
        return -errno.EAGAIN if self._happens(self.rates.again) else super().status_now(path, follow)

    def content_now(self, path: str | bytes, limit: int) -> Any:
        """Return all of a file, unless it is not in memory."""
        return -errno.EAGAIN if self._happens(self.rates.again) else super().content_now(path, limit)

    def open_now(self, path: str | bytes) -> int:
        """Return a descriptor, unless some part of the path is not in memory."""
        return -errno.EAGAIN if self._happens(self.rates.again) else super().open_now(path)

    def read_now(self, fd: int, size: int, offset: int) -> Any:
        """Read, unless not all of it is in memory."""
        return -errno.EAGAIN if self._happens(self.rates.again) else super().read_now(fd, size, offset)

    def open_file(self, path: str | bytes, flags: int, mode: int) -> int:
        """Open, unless there are too many descriptors or a signal comes."""
        if self._happens(self.rates.unopened):
            return self._refuse("open_file", errno.EMFILE, errno.ENFILE)
        if self._happens(self.rates.interrupted):
            return self._refuse("open_file", errno.EINTR)
        return super().open_file(path, flags, mode)

    def open_directory(self, path: str | bytes) -> Any:
        """Open a directory, unless there are too many descriptors."""
        if self._happens(self.rates.unopened):
            return self._refuse("open_directory", errno.EMFILE, errno.ENFILE)
        return super().open_directory(path)

    def read_file(self, fd: int, size: int, offset: int) -> bytes | int:
        """Read, perhaps fewer bytes than there are."""
        if self._happens(self.rates.interrupted):
            return self._refuse("read_file", errno.EINTR)
        return super().read_file(fd, self._cut_of_file("read_file", size), offset)

    def read_file_into(self, fd: int, views: list[memoryview], offset: int) -> int:
        """Read, perhaps into the beginning of the first buffer only."""
        if self._happens(self.rates.interrupted):
            return self._refuse("read_file_into", errno.EINTR)
        cut = self._cut_of_file("read_file_into", len(views[0]))
        if cut == len(views[0]):
            return super().read_file_into(fd, views, offset)
        with views[0][:cut] as part:
            return super().read_file_into(fd, [part], offset)

    def write_file(self, fd: int, views: list[memoryview], offset: int) -> int:
        """Write, perhaps the beginning of the first buffer only."""
        if self._happens(self.rates.interrupted):
            return self._refuse("write_file", errno.EINTR)
        cut = self._cut_of_file("write_file", len(views[0]))
        if cut == len(views[0]):
            return super().write_file(fd, views, offset)
        with views[0][:cut] as part:
            return super().write_file(fd, [part], offset)

    def copy_range(self, target: int, source: int, offset: int, count: int) -> int:
        """Copy, perhaps fewer bytes than there are."""
        if self._happens(self.rates.interrupted):
            return self._refuse("copy_range", errno.EINTR)
        return super().copy_range(target, source, offset, self._cut_of_file("copy_range", count))

    def _cut_of_file(self, call: str, size: int) -> int:
        cut = self._cut(size)
        if cut < size:
            self.injected[f"{call} short"] += 1
        return cut

    # Readiness.

    def epoll_ctl(self, epfd: int, operation: int, fd: int, mask: int, generation: int) -> int:
        """Change a watch, and remember it."""
        result = super().epoll_ctl(epfd, operation, fd, mask, generation)
        if operation == _DEL:
            self._watches.pop(fd, None)
        elif result == 0:
            self._watches[fd] = (epfd, mask, generation)
        return result

    def epoll_wait(self, epfd: int, timeout_ns: int, events: EventBatch) -> int:
        """Sleep for events, or be interrupted."""
        if self._happens(self.rates.interrupted):
            return self._refuse("epoll_wait", errno.EINTR)
        return super().epoll_wait(epfd, timeout_ns, events)

    # Sockets.

    def open_socket(self, family: int, kind: int, protocol: int) -> Any:
        """Return a new socket, unless there are too many."""
        if self._happens(self.rates.unopened):
            return self._refuse("open_socket", errno.EMFILE, errno.ENFILE, errno.ENOBUFS)
        return super().open_socket(family, kind, protocol)

    def duplicate(self, fd: int, lowest: int = 0) -> int:
        """Return another descriptor for the same file, unless there are too many."""
        if self._happens(self.rates.unopened):
            return self._refuse("duplicate", errno.EMFILE)
        return super().duplicate(fd, lowest)

    def pidfd_open(self, pid: int) -> int:
        """Return a descriptor for a child, unless there are too many or it is forbidden."""
        if self._happens(self.rates.unopened):
            return self._refuse("pidfd_open", errno.EMFILE, errno.ENOSYS, errno.EPERM)
        return super().pidfd_open(pid)

    def accept(self, sock: Any) -> Any:
        """Return the next connection, unless it went away or there are too many."""
        return self._refuse_connection(sock.fileno()) or super().accept(sock)

    def accept_descriptor(self, fd: int) -> Any:
        """Return the next connection as a descriptor, unless it went away or there are too many."""
        return self._refuse_connection(fd) or super().accept_descriptor(fd)

    def _refuse_connection(self, fd: int) -> int:
        if self._happens(self.rates.again):
            self._arm_anew(fd)
            return self._refuse("accept", errno.EAGAIN)
        if self._happens(self.rates.interrupted):
            return self._refuse("accept", errno.EINTR)
        if self._happens(self.rates.aborted):
            return self._refuse("accept", errno.ECONNABORTED)
        if self._happens(self.rates.exhausted):
            return self._refuse("accept", errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
        return 0

    def connect(self, sock: Any, address: Any) -> int:
        """Begin to connect; an interrupted call goes on in the background."""
        result = super().connect(sock, address)
        if result in (0, -errno.EINPROGRESS) and self._happens(self.rates.interrupted):
            return self._refuse("connect", errno.EINTR)
        return result

    def open_descriptor(self, family: int, protocol: int) -> int:
        """Return a new socket as a descriptor, unless there are too many."""
        if self._happens(self.rates.unopened):
            return self._refuse("open_descriptor", errno.EMFILE, errno.ENFILE, errno.ENOBUFS)
        return super().open_descriptor(family, protocol)

    def connect_descriptor(self, fd: int, family: int, address: Any) -> int:
        """Begin to connect; an interrupted call goes on in the background."""
        result = super().connect_descriptor(fd, family, address)
        if result in (0, -errno.EINPROGRESS) and self._happens(self.rates.interrupted):
            return self._refuse("connect_descriptor", errno.EINTR)
        return result

    # Descriptors that must not fail, and descriptors that are closed.

    def eventfd(self) -> int:
        """Return the loop's wakeup without faults: a write to it never fails with the real kernel either."""
        fd = super().eventfd()
        self._spared.add(fd)
        return fd

    def inotify_create(self) -> int:
        """Return an inotify instance without faults: each of its events is read whole or not at all."""
        fd = super().inotify_create()
        self._spared.add(fd)
        return fd

    def socket_pair(self) -> Any:
        """Return sockets without faults: the wakeup if there is no eventfd, and the pipe for signals."""
        pair = super().socket_pair()
        if not isinstance(pair, int):
            self._spared.update(sock.fileno() for sock in pair)
        return pair

    def close(self, fd: int) -> int:
        """Close a descriptor, and forget its watch."""
        self._forget(fd)
        return super().close(fd)

    def close_socket(self, sock: Any) -> int:
        """Close a socket, and forget its watch."""
        self._forget(sock.fileno())
        return super().close_socket(sock)

    def _forget(self, fd: int) -> None:
        self._watches.pop(fd, None)
        self._spared.discard(fd)

    # The faults.

    def _happens(self, rate: float) -> bool:
        return rate > 0 and self._random.random() < rate

    def _refuse(self, call: str, *codes: int) -> int:
        code = self._random.choice(codes)
        self.injected[f"{call} {errno.errorcode[code]}"] += 1
        return -code

    def _refuse_transfer(self, call: str, fd: int) -> int:
        """Return the refusal of a read or write, 0 if it may go on."""
        if self._happens(self.rates.again):
            self._arm_anew(fd)
            return self._refuse(call, errno.EAGAIN)
        if self._happens(self.rates.interrupted):
            return self._refuse(call, errno.EINTR)
        if call.startswith("send") and self._happens(self.rates.no_buffers):
            return self._refuse(call, errno.ENOBUFS)
        if self._happens(self.rates.reset):
            return self._refuse(call, errno.ECONNRESET)
        return 0

    def _cut(self, size: int) -> int:
        """Return how many of `size` bytes a transfer may move: all, or fewer, at least one."""
        if size < 2 or not self._happens(self.rates.short):
            return size
        return min(size, self._random.randint(1, 2 << self._random.randrange(_LARGEST_CUT_BITS)))

    def _cut_chunks(self, chunks: list[bytes], first: int, offset: int) -> list[bytes] | None:
        """Return the part of the chunks that may be sent; None for all of them."""
        rest = sum(map(len, chunks[first:])) - offset
        cut = self._cut(rest)
        if cut >= rest:
            return None
        parts = []
        for chunk in chunks[first:]:
            part = chunk[offset : offset + cut]
            parts.append(part)
            cut -= len(part)
            offset = 0
            if not cut:
                break
        return parts

    def _note_short(self, call: str, fd: int) -> None:
        self.injected[f"{call} short"] += 1
        self._arm_anew(fd)

    def _arm_anew(self, fd: int) -> None:
        """Let an edge-triggered watch report the present events once more."""
        epfd, mask, generation = self._watches.get(fd, (-1, 0, 0))
        if mask & _EPOLLET:
            super().epoll_ctl(epfd, _MOD, fd, mask, generation)
