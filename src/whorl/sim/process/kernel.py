"""The kernel of one simulated host: the production loop's calls, answered by simulated files.

Sockets are objects here, as they are in the uncompiled build. The calls of `Kernel` that take a socket object
call its methods, so they need no code of their own.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING, Any

from whorl.core import limits
from whorl.core.kernel.datagrams import receive_by_object, send_by_object
from whorl.sim.files.disk_file import DiskFile
from whorl.sim.files.epoll import Epoll, Watch
from whorl.sim.files.file import AGAIN, FIRST_FD, Counter, DescriptorTable, File
from whorl.sim.files.pipes import pipe
from whorl.sim.files.sockets import SocketFile
from whorl.sim.files.tcp import TcpSocket
from whorl.sim.files.udp import DatagramFile, UdpSocket
from whorl.sim.files.unix import UnixSocket, socket_pair
from whorl.sim.process.children import PidFile
from whorl.sim.process.digest import Digest
from whorl.sim.process.file_calls import DiskCalls
from whorl.sim.process.socket import SimSocket
from whorl.sim.wire.names import family_of
from whorl.sim.wire.timeline import MICROSECOND

if TYPE_CHECKING:
    from whorl.sim.chance.faults import Faults
    from whorl.sim.process.owner import ProcessHost

#: How long an event is late that follows a refused call, and the longest part of a short read or write.
_AGAIN_NS = 10 * MICROSECOND
_SHORTEST_PARTS = 64

_LAST_PORT = 65535

#: The details of a poll that finds no event.
_NOTHING: tuple[list[tuple[int, int]]] = ([],)


def _only_again(code: int) -> int:
    """Return EAGAIN, negative; raise any other error as the socket object does."""
    if code != AGAIN:
        raise OSError(-code, os.strerror(-code))
    return code


def _is_numeric(file: DatagramFile, address: Any) -> bool:
    """Return whether an address is one as the socket object's `numeric` returns it."""
    return (
        isinstance(file, UdpSocket)
        and type(address) is tuple
        and len(address) == 2
        and type(address[0]) is str
        and type(address[1]) is int
        and 0 <= address[1] <= _LAST_PORT
        and (file.knows(address[0]) or family_of(address[0]) == file.family)
    )


class OpenDatagrams:
    """The open file behind a socket object, as long as no descriptor of its process changes."""

    def __init__(self, table: DescriptorTable, fd: int, file: DatagramFile) -> None:
        self.table: DescriptorTable = table
        self.changes: int = table.changes
        self.fd: int = fd
        self.file: DatagramFile = file


class SimKernel(DiskCalls):
    """The kernel of a simulated host."""

    def __init__(self, host: ProcessHost, max_files: int, digest: Digest, faults: Faults) -> None:
        DiskCalls.__init__(self, host, DescriptorTable(max_files), digest, faults)
        self.keeps_edges = True
        self.epoll: Epoll = None  # type: ignore[assignment]  # the one of the host's loop: the first
        decisions, name = host.decisions, host.name
        self._short = decisions.stream(f"{name}/short")
        self._again = decisions.stream(f"{name}/again")
        self._fails = decisions.stream(f"{name}/resources")
        self._poll_stream = f"{name}/events"
        self._is_driven = host.is_driven
        self._refuses, self._shortens = faults.again, faults.short

    # Time and chance.

    def now(self) -> int:
        return self.host._look_ns()

    def seconds(self) -> float:
        return self.now() / 1e9

    def ticks(self) -> int:
        return self.now()

    def random_bytes(self, size: int) -> bytes:
        return self.host.random_bytes(size)

    # Readiness.

    def epoll_create(self) -> int:
        epoll = Epoll(self.host)
        if self.epoll is None:
            self.epoll = epoll
        return self.table.add(epoll)

    def epoll_ctl(self, epfd: int, operation: int, fd: int, mask: int, generation: int) -> int:
        epoll, file = self.table.find(epfd), self._file(fd)
        if not isinstance(epoll, Epoll) or file is None:
            return -errno.EBADF
        if isinstance(file, DiskFile):
            return -errno.EPERM  # man 2 epoll_ctl: files are always ready
        code = epoll.change(operation, file, fd, mask, generation)
        self._add_call("epoll_ctl", (operation, fd, mask, code))
        return code

    def epoll_wait(self, epfd: int, timeout_ns: int, events: Any) -> int:
        events.clear()
        file = self.table.find(epfd)
        if not isinstance(file, Epoll):
            return -errno.EBADF
        epoll: Epoll = file
        if timeout_ns or not self._is_driven:
            self.host.world.sleep_in(self.host, timeout_ns)
        if not epoll.ready:
            self._add_call("epoll_wait", _NOTHING)
            return 0
        found = epoll.collect(limits.EVENTS_PER_POLL)
        if len(found) > 1:
            found = self._in_some_order(found)
        noted = []
        for watch in found:
            events.put(watch.fd, watch.seen, watch.generation)
            noted.append((watch.fd, watch.seen))
        self._add_call("epoll_wait", (noted,))
        return len(found)

    def _in_some_order(self, found: list[Watch]) -> list[Watch]:
        """Return events in the order that the seed decides; those of the host itself keep theirs.

        Packets of a network may come in another order. Pipes, UNIX sockets and the like become ready in the
        order in which they are written to (man 7 epoll).
        """
        near = [watch for watch in found if not isinstance(watch.file, (TcpSocket, UdpSocket))]
        if len(near) == len(found):
            return found
        keys = [watch.fd for watch in found]
        order = [found[place] for place in self.host.decisions.order(self._poll_stream, keys)]
        if len(near) > 1:
            rest = iter(near)
            order = [each if isinstance(each.file, (TcpSocket, UdpSocket)) else next(rest) for each in order]
        return order

    def eventfd(self) -> int:
        return self.table.add(Counter(self.host))

    # Data.

    def _is_refused(self, file: File) -> bool:
        """Return whether a call finds nothing this time, although it could; it is tried again soon."""
        if not self._again.happens(self._refuses):
            return False
        self._tell_later(file)
        return True

    def _tell_later(self, file: Any) -> None:
        """Let what was left of a file be an event, soon."""
        self.host.after(_AGAIN_NS, file.changed)

    def _cut(self, file: File, size: int) -> int:
        """Return how much of a message is taken at once."""
        if size > 1 and (part := self._short.decide(_SHORTEST_PARTS, self._shortens)):
            return min(size, max(1, size * part // _SHORTEST_PARTS))
        return size

    def recv(self, fd: int, limit: int) -> bytes | int:
        file = self._file(fd)
        if file is None:
            return -errno.EBADF
        if self._refuses and isinstance(file, SocketFile) and self._is_refused(file):
            data: bytes | int = -errno.EAGAIN
        elif self._shortens and not file.is_whole:
            waiting = file.readiness() & 1
            data = file.read(self._cut(file, min(limit, 4096)) if waiting else limit)
            if waiting and file.readiness() & 1:
                self._tell_later(file)  # The rest is a new edge.
        else:
            data = file.read(limit)
        self._add_call("recv", (fd, data))
        return data

    def recv_short(self, fd: int, limit: int) -> bytes | int:
        return self.recv(fd, limit)

    def recv_into(self, fd: int, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self.recv(fd, len(view))
        if isinstance(data, int):
            return data
        view[: len(data)] = data
        return len(data)

    def send(self, fd: int, data: Any, offset: int) -> int:
        file = self._file(fd)
        if file is None:
            return -errno.EBADF
        content = data if type(data) is bytes else memoryview(data).tobytes()
        if not 0 <= offset <= len(content):
            return -errno.EINVAL
        content = content[offset:] if offset else content
        if self._refuses and content and isinstance(file, SocketFile) and self._is_refused(file):
            file.await_room()
            sent = -errno.EAGAIN
        else:
            part = len(content)
            if self._shortens and not file.is_whole:
                part = self._cut(file, part)
            sent = file.write(content if part == len(content) else content[:part])
            if 0 <= sent < len(content) and sent == part:
                file.await_room()
                self._tell_later(file)
        if sent != len(content):
            content = content[: max(sent, 0)]
        self._add_call("send", (fd, content, sent))
        return sent

    def send_more(self, fd: int, data: Any, offset: int) -> int:
        file = self._file(fd)
        outgoing = file.outgoing if isinstance(file, TcpSocket) else None
        if outgoing is None:
            return self.send(fd, data, offset)
        outgoing.holds_more = True
        try:
            return self.send(fd, data, offset)
        finally:
            outgoing.holds_more = False

    def push(self, fd: int) -> int:
        file = self._file(fd)
        if not isinstance(file, TcpSocket):
            return -errno.EBADF if file is None else -errno.EOPNOTSUPP
        if file.outgoing is not None:
            file.outgoing.push()
        self._add_call("push", (fd,))
        return 0

    def send_many(self, fd: int, chunks: list[bytes], first: int, offset: int) -> int:
        if not (0 <= first < len(chunks) and 0 <= offset <= len(chunks[first])):
            return -errno.EINVAL
        return self.send(fd, b"".join(chunks[first : first + limits.WRITE_VECTORS]), offset)

    def read(self, fd: int, limit: int) -> bytes | int:
        return self.recv(fd, limit)

    def read_into(self, fd: int, buffer: Any) -> int:
        return self.recv_into(fd, buffer)

    def write(self, fd: int, data: Any, offset: int) -> int:
        return self.send(fd, data, offset)

    def write_many(self, fd: int, chunks: list[bytes], first: int, offset: int) -> int:
        return self.send_many(fd, chunks, first, offset)

    def close(self, fd: int) -> int:
        code = self.table.remove(fd)
        self._add_call("close", (fd, code))
        return code

    # Sockets.

    def resources_fault(self, *codes: int) -> int:
        """Return the error of a call that finds no descriptors or memory; 0: it finds them."""
        faults = self.faults
        for code in codes:
            rate = faults.emfile if code == errno.EMFILE else faults.enobufs
            if self._fails.happens(rate):
                return code
        return 0

    def accept_fault(self) -> int:
        """Return the error by which an accept fails; 0: it does not."""
        if self.faults.aborted and self._fails.happens(self.faults.aborted):
            return errno.ECONNABORTED
        return self.resources_fault(errno.EMFILE)

    def new_file(self, family: int, kind: int, protocol: int) -> SocketFile | int:
        """Return a new socket without a descriptor, or the negative error number."""
        host, plain_kind = self.host, kind & 0xF
        if family in (socket.AF_INET, socket.AF_INET6):
            if plain_kind == socket.SOCK_STREAM:
                return TcpSocket(host, family, plain_kind, protocol)
            if plain_kind == socket.SOCK_DGRAM:
                return UdpSocket(host, family, plain_kind, protocol)
        elif family == socket.AF_UNIX:
            if plain_kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
                return UnixSocket(host, plain_kind)
        return -errno.EAFNOSUPPORT

    def socket_for(self, file: SocketFile) -> SimSocket | int:
        """Return a socket object with a descriptor for a file."""
        fd = self.table.add(file)
        return SimSocket.of(self, file, fd) if fd >= 0 else fd

    def make_socket(self, family: int, kind: int, protocol: int) -> SimSocket | int:
        """Return a new socket object, or the negative error number (man 2 socket)."""
        fault = self.resources_fault(errno.EMFILE, errno.ENOBUFS)
        file = -fault if fault else self.new_file(family, kind, protocol)
        answer = file if isinstance(file, int) else self.socket_for(file)
        fd = answer if isinstance(answer, int) else answer.fileno()
        self.note("socket", int(family), int(kind), fd)
        return answer

    def open_socket(self, family: int, kind: int, protocol: int) -> Any:
        answer = self.make_socket(family, kind, protocol)
        if not isinstance(answer, int):
            answer.setblocking(False)
        return answer

    def adopt_socket(self, fd: int) -> Any:
        file = self._file(fd)
        if not isinstance(file, SocketFile):
            return -errno.EBADF if file is None else -errno.ENOTSOCK
        return SimSocket.of(self, file, fd, timeout=0.0)

    def socket_pair(self, kind: int = socket.SOCK_STREAM) -> Any:
        made: list[SimSocket] = []
        for file in socket_pair(self.host, kind):
            sock = self.socket_for(file)
            if isinstance(sock, int):
                for other in made:
                    other.close()
                return sock
            sock.setblocking(False)
            made.append(sock)
        return tuple(made)

    # Datagrams.

    def receives_many(self) -> bool:
        return False

    def receive_datagram(self, fd: int, file: DatagramFile, peeks: bool = False) -> tuple[bytes, Any] | int:
        """Return a datagram and its sender's address; `peeks`: and leave it."""
        if self._refuses and file.waiting and self._is_refused(file):
            received: tuple[bytes, Any] | int = -errno.EAGAIN
        else:
            received = file.receive(peeks)
        self._add_call("recvfrom", (fd, received))
        return received

    def send_datagram_to(self, fd: int, file: DatagramFile, data: bytes, address: Any) -> int:
        """Send a datagram to an address."""
        fault = self.faults.enobufs and self._fails.happens(self.faults.enobufs)
        sent = -errno.ENOBUFS if fault else file.send_to(data, address)
        self._add_call("sendto", (fd, data, address, sent))
        return sent

    def recv_datagrams(self, sock: Any, into: list[Any], limit: int) -> int:
        received = 0
        while received < limit:
            code = self._receive_one(sock, into)
            if code < 0:
                return received or code
            received += 1
        return received

    def _datagrams_of(self, sock: Any) -> OpenDatagrams | None:
        """Return what is behind a socket object of the world's that does not wait; None for others."""
        known = sock.known
        if known is not None and known.table is self.table and known.changes == self.table.changes:
            return known  # type: ignore[no-any-return]
        own = sock.sock
        if type(own) is not SimSocket or own._timeout != 0.0:
            return None
        file = own._file
        if not isinstance(file, DatagramFile) or self.table.find(own._fd) is not file:
            return None
        found = sock.known = OpenDatagrams(self.table, own._fd, file)
        return found

    def _receive_one(self, sock: Any, into: list[Any]) -> int:
        """Receive a datagram as `recvfrom` of the socket object does; EAGAIN is no exception here."""
        known = self._datagrams_of(sock)
        if known is None:
            return receive_by_object(self, sock, into)
        received = self.receive_datagram(known.fd, known.file)
        if isinstance(received, int):
            return _only_again(received)
        data, address = received
        into.append(data if len(data) <= limits.READ_SIZE else data[: limits.READ_SIZE])
        into.append(address)
        return 1

    def send_datagram(self, sock: Any, data: Any, address: Any) -> int:
        known = None if address is None else self._datagrams_of(sock)
        if known is None:
            return send_by_object(sock, data, address)
        content = data if type(data) is bytes else memoryview(data).tobytes()
        if not _is_numeric(known.file, address):
            address = sock.sock.numeric(address, "sendto")
        sent = self.send_datagram_to(known.fd, known.file, content, address)
        return len(data) if sent >= 0 else _only_again(sent)

    def send_datagrams(self, sock: Any, queue: list[Any], first: int) -> int:
        sent = 0
        for datagram in queue[first:]:
            code = send_by_object(sock, datagram[0], datagram[1])
            if code < 0:
                return sent or code
            sent += 1
        return sent

    def disconnect(self, sock: Any) -> int:
        file = self._file(sock.fileno())
        return file.disconnect() if isinstance(file, DatagramFile) else -errno.EBADF

    def interface_index(self, name: str) -> int:
        return {"lo": 1, "eth0": 2}.get(name, int(name) if name.isdecimal() else -errno.ENODEV)

    # Other descriptors.

    def pipe(self) -> tuple[int, int] | int:
        fault = self.resources_fault(errno.EMFILE)
        if fault:
            return -fault
        fds: list[int] = []
        for end in pipe(self.host):
            fd = self.table.add(end)
            if fd < 0:
                for other in fds:
                    self.table.remove(other)
                return fd
            fds.append(fd)
        self.note("pipe", *fds)
        return fds[0], fds[1]

    def duplicate(self, fd: int, lowest: int = 0) -> int:
        file = self._file(fd)
        return -errno.EBADF if file is None else self.table.add(file, max(lowest, FIRST_FD))

    def set_blocking(self, fd: int, blocking: bool) -> int:
        file = self._file(fd)
        if file is None:
            return -errno.EBADF
        file.flags = file.flags & ~os.O_NONBLOCK | (0 if blocking else os.O_NONBLOCK)
        return 0

    def file_flags(self, fd: int) -> int:
        file = self._file(fd)
        return -errno.EBADF if file is None else file.flags

    def file_mode(self, fd: int) -> int:
        file = self._file(fd)
        return -errno.EBADF if file is None else file.kind | 0o777

    def socket_kind(self, fd: int) -> tuple[int, int] | int:
        file = self._file(fd)
        if isinstance(file, SocketFile):
            return int(file.family), int(file.type)
        return -errno.EBADF if file is None else -errno.ENOTSOCK

    def pidfd_open(self, pid: int) -> int:
        child = self.host.process.children.find(pid)
        return self.table.add(PidFile(self.host, child)) if child is not None else -errno.ESRCH

    # Terminals and news of changed files are no part of the world.

    def is_terminal(self, fd: int) -> bool:
        return False

    def is_terminal_master(self, fd: int) -> bool:
        return False

    def reopen_terminal(self, fd: int, flags: int) -> int:
        return -errno.ENOTTY

    def terminal_settings(self, fd: int) -> list[Any] | int:
        return -errno.ENOTTY

    def set_terminal(self, fd: int, settings: list[Any], *, drain: bool) -> int:
        return -errno.ENOTTY

    def terminal_size(self, fd: int) -> tuple[int, int] | int:
        return -errno.ENOTTY

    def inotify_create(self) -> int:
        return -errno.ENOSYS
