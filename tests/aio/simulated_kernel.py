"""A kernel of plain Python in which nothing is real: virtual time, sockets in memory, epoll over them.

Time moves only in `epoll_wait`: when nothing is ready it jumps to whatever comes next, a packet on
its way or the caller's deadline. A world in which nothing can come any more is a `Deadlock`.

Bytes travel through a `Channel`, one for each direction of a connection. It has room for so many
bytes in all, on their way or unread; TCP's take some time to arrive, those of UNIX sockets none.
"""

from __future__ import annotations

import collections
import errno
import heapq
import random
import socket
import stat
import struct
from collections.abc import Callable
from typing import Any

from whorl.core import Host, Kernel
from whorl.core.kernel.files import FileCalls

EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP, EPOLLRDHUP, EPOLLET = 0x1, 0x4, 0x8, 0x10, 0x2000, 1 << 31
ADD, DEL, MOD = 1, 2, 3
EVENTS_PER_POLL = 1024
SECOND = 1_000_000_000

#: Descriptors begin here, far from those of the process; a loop keeps a table of as many places.
FIRST_FD = 20_000

#: The capacity of a channel, in bytes.
ROOM = 150_000

#: How long a packet travels, and a client waits before it knocks again at a full listener.
LATENCY_NS = 100_000
RETRY_NS = SECOND

#: A world that polls so often without time passing turns in circles.
LIVELOCK = 100_000


class Deadlock(Exception):
    """Raised when all wait, and no event is on its way."""


class Livelock(Exception):
    """Raised when events go on while time stands still."""


class Watch:
    """One descriptor in an epoll."""

    def __init__(self, mask: int, generation: int) -> None:
        self.mask = mask
        self.generation = generation
        self.has_edge = True  # what is there already counts as new


class File:
    """An object with a descriptor."""

    def __init__(self, kernel: SimulatedKernel) -> None:
        self.kernel = kernel
        self.fd = kernel.take_fd(self)

    def readiness(self) -> int:
        """Return the mask that epoll would report."""
        return 0

    def changed(self) -> None:
        """Make a new edge for all watches."""
        for epoll in self.kernel.epolls():
            if self.fd in epoll.watches:
                epoll.watches[self.fd].has_edge = True

    def close(self) -> None:
        """Give the descriptor back; watches end with it."""
        for epoll in self.kernel.epolls():
            epoll.watches.pop(self.fd, None)
        del self.kernel.files[self.fd]
        self.fd = -1


class Epoll(File):
    """A set of watches."""

    def __init__(self, kernel: SimulatedKernel) -> None:
        self.watches: dict[int, Watch] = {}
        super().__init__(kernel)

    def collect(self) -> list[tuple[int, int, int]]:
        """Return the descriptor, mask and generation of each ready watch."""
        found = []
        for fd, watch in self.watches.items():
            ready = self.kernel.files[fd].readiness() & (watch.mask | EPOLLERR | EPOLLHUP)
            if ready and (watch.has_edge or not watch.mask & EPOLLET):
                found.append((fd, ready, watch.generation))
        self.kernel.random.shuffle(found)
        for fd, _, _ in found[:EVENTS_PER_POLL]:
            self.watches[fd].has_edge = False
        return found[:EVENTS_PER_POLL]


class Counter(File):
    """An eventfd."""

    def __init__(self, kernel: SimulatedKernel) -> None:
        self.count = 0
        super().__init__(kernel)

    def readiness(self) -> int:
        return EPOLLOUT | (EPOLLIN if self.count else 0)


class Channel:
    """One direction of a connection: bytes in order, an end, and the room they take."""

    def __init__(self, kernel: SimulatedKernel, latency_ns: int) -> None:
        self.kernel = kernel
        self.latency_ns = latency_ns
        self.sender: SimulatedSocket | None = None
        self.receiver: SimulatedSocket | None = None
        self.arrived = bytearray()
        self.on_its_way = 0
        self.ended = False  # the end has arrived
        self.was_full = False  # the sender was refused, and waits for room

    def room(self) -> int:
        return ROOM - len(self.arrived) - self.on_its_way

    def send(self, data: bytes) -> None:
        self.on_its_way += len(data)
        self.kernel.after(self.latency_ns, lambda: self._arrive(data))

    def send_end(self) -> None:
        self.kernel.after(self.latency_ns, self._arrive_end)

    def _arrive(self, data: bytes) -> None:
        self.on_its_way -= len(data)
        if self.receiver is not None:
            self.arrived += data
            self.receiver.changed()
        elif self.sender is not None:
            self.sender.reset()  # nobody is there any more

    def _arrive_end(self) -> None:
        self.ended = True
        if self.receiver is not None:
            self.receiver.changed()

    def take(self, limit: int) -> bytes:
        data = bytes(self.arrived[:limit])
        del self.arrived[:limit]
        if self.was_full and self.sender is not None and self.room() >= ROOM // 3:
            self.was_full = False
            self.sender.changed()
        return data


class SimulatedSocket(File):
    """A stand-in for a socket object, with enough of its methods for transports and their users."""

    def __init__(self, kernel: SimulatedKernel, family: int, kind: int, protocol: int) -> None:
        self.family = socket.AddressFamily(family)
        self.type = socket.SocketKind(kind)
        self.proto = protocol
        self.options: dict[tuple[int, int], Any] = {}
        self.name: Any = "" if family == socket.AF_UNIX else ("0.0.0.0", 0)
        self.peer_name: Any = None
        self.backlog: int | None = None  # not None: it listens
        self.waiting: collections.deque[SimulatedSocket] = collections.deque()  # connections to accept
        self.incoming: Channel | None = None
        self.outgoing: Channel | None = None
        self.is_connected = False
        self.error = 0
        self.was_reset = False
        self.has_ended = False  # its own writing side is shut
        super().__init__(kernel)

    # The connection.

    def readiness(self) -> int:
        if self.backlog is not None:
            return EPOLLIN if self.waiting else 0
        ready = EPOLLERR if self.error else 0
        if self.was_reset:
            return ready | EPOLLIN | EPOLLOUT | EPOLLHUP | EPOLLRDHUP
        if not self.is_connected or self.incoming is None or self.outgoing is None:
            return ready
        if self.incoming.arrived:
            ready |= EPOLLIN
        if self.incoming.ended:
            ready |= EPOLLIN | EPOLLRDHUP
            if self.has_ended:
                ready |= EPOLLHUP
        if self.has_ended or self.outgoing.room() >= ROOM // 3:
            ready |= EPOLLOUT
        return ready

    def receive(self, limit: int) -> bytes | int:
        if self.incoming is not None and self.incoming.arrived:
            return self.incoming.take(limit)
        if self.error:
            return -self.take_error()
        if self.was_reset:
            return b""
        if self.incoming is None:
            return -errno.ENOTCONN
        return b"" if self.incoming.ended else -errno.EAGAIN

    def transmit(self, data: bytes) -> int:
        if self.error:
            return -self.take_error()
        if self.was_reset or self.has_ended:
            return -errno.EPIPE
        if self.outgoing is None:
            return -errno.ENOTCONN
        room = self.outgoing.room()
        if room < len(data):
            self.outgoing.was_full = True
        if room <= 0:
            return -errno.EAGAIN
        self.outgoing.send(data[:room])
        return min(room, len(data))

    def establish(self) -> None:
        """Establish the connection."""
        self.is_connected = True
        self.changed()

    def take_error(self) -> int:
        code, self.error = self.error, 0
        return code

    def fail(self, code: int) -> None:
        self.error = code
        self.was_reset = True
        self.changed()

    def reset(self) -> None:
        """Handle a reset from the peer."""
        self.fail(errno.ECONNRESET)

    def end(self) -> None:
        """Shut the writing side."""
        if not self.has_ended and self.outgoing is not None:
            self.has_ended = True
            self.outgoing.send_end()
            self.changed()

    # The methods of a socket object.

    def fileno(self) -> int:
        return self.fd

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def gettimeout(self) -> float:
        return 0.0

    def getsockname(self) -> Any:
        return self.name

    def getpeername(self) -> Any:
        if self.peer_name is None:
            raise OSError(errno.ENOTCONN, "not connected")
        return self.peer_name

    def getsockopt(self, level: int, option: int) -> Any:
        if (level, option) == (socket.SOL_SOCKET, socket.SO_ERROR):
            return self.take_error()
        return self.options.get((level, option), 0)

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        self.options[level, option] = value

    def shutdown(self, how: int) -> None:
        if self.outgoing is None or self.incoming is None:
            raise OSError(errno.ENOTCONN, "not connected")
        if how != socket.SHUT_RD:
            self.end()
        if how != socket.SHUT_WR:
            self.incoming.ended = True

    def close(self) -> None:
        if self.fd < 0:
            return
        if self.backlog is not None:
            self.kernel.bound.pop(self.name, None)
            for connection in self.waiting:
                connection.close()
        super().close()
        if self.incoming is not None and self.outgoing is not None:
            incoming, outgoing = self.incoming, self.outgoing
            incoming.receiver = outgoing.sender = None
            lingers = struct.unpack("ii", self.options.get((socket.SOL_SOCKET, socket.SO_LINGER), bytes(8)))
            peer = incoming.sender
            if (incoming.arrived or lingers == (1, 0)) and peer is not None:
                self.kernel.after(outgoing.latency_ns, peer.reset)
            elif not self.has_ended:
                outgoing.send_end()


def joined(kernel: SimulatedKernel, ours: SimulatedSocket, theirs: SimulatedSocket, latency_ns: int) -> None:
    """Connect two sockets."""
    for sender, receiver in ((ours, theirs), (theirs, ours)):
        channel = Channel(kernel, latency_ns)
        channel.sender, channel.receiver = sender, receiver
        sender.outgoing = receiver.incoming = channel
        sender.peer_name = receiver.name


class SimulatedKernel(Kernel):
    """The world. `trace` gets every call with its answer and the time, if it is a list."""

    def __init__(self, seed: int = 0, trace: list[tuple[Any, ...]] | None = None) -> None:
        super().__init__()
        self.keeps_edges = True
        self.random = random.Random(seed)
        self.trace = trace
        self.files: dict[int, File] = {}
        self.bound: dict[Any, SimulatedSocket] = {}  # by address
        self.modes: dict[Any, tuple[int, int]] = {}  # mode and inode by path
        self.inodes = 0
        self._clock = 1000 * SECOND
        self._future: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self._polls = 0

    # The world's own affairs.

    def take_fd(self, file: File) -> int:
        """Return the lowest free number."""
        fd = FIRST_FD
        while fd in self.files:
            fd += 1
        self.files[fd] = file
        return fd

    def epolls(self) -> list[Epoll]:
        return [file for file in self.files.values() if isinstance(file, Epoll)]

    def after(self, delay_ns: int, act: Callable[[], None]) -> None:
        """Let something happen later; at once if there is no delay."""
        if delay_ns == 0:
            act()
            return
        self._number += 1
        heapq.heappush(self._future, (self._clock + delay_ns, self._number, act))

    def _note(self, call: str, *details: Any) -> None:
        if self.trace is not None:
            self.trace.append((self._clock, call, *details))

    def _happen(self) -> None:
        """Do everything that is due by now."""
        while self._future and self._future[0][0] <= self._clock:
            heapq.heappop(self._future)[2]()

    # Time and readiness.

    def now(self) -> int:
        return self._clock

    def seconds(self) -> float:
        return self.now() / 1e9

    def ticks(self) -> int:
        return self.now()

    def epoll_create(self) -> int:
        return Epoll(self).fd

    def epoll_ctl(self, epfd: int, operation: int, fd: int, mask: int, generation: int) -> int:
        self._note("epoll_ctl", operation, fd, mask, generation)
        watches = self.files[epfd].watches
        if fd not in self.files:
            return -errno.EBADF
        if operation == ADD:
            if fd in watches:
                return -errno.EEXIST
            watches[fd] = Watch(mask, generation)
        elif fd not in watches:
            return -errno.ENOENT
        elif operation == MOD:
            watches[fd] = Watch(mask, generation)
        else:
            del watches[fd]
        return 0

    def epoll_wait(self, epfd: int, timeout_ns: int, events: Any) -> int:
        events.clear()
        deadline = self._clock + timeout_ns if timeout_ns >= 0 else None
        self._polls += 1
        if self._polls > LIVELOCK:
            raise Livelock(f"{LIVELOCK} polls at the same time")
        self._happen()
        found = self.files[epfd].collect()
        while not found and (deadline is None or self._clock < deadline):
            following = self._future[0][0] if self._future else None
            if following is None and deadline is None:
                raise Deadlock("nothing is on its way, and no timer is set")
            self._clock = min(time for time in (following, deadline) if time is not None)
            self._polls = 0
            self._happen()
            found = self.files[epfd].collect()
        for fd, mask, generation in found:
            events.put(fd, mask, generation)
        self._note("epoll_wait", timeout_ns, tuple(found))
        return len(found)

    def eventfd(self) -> int:
        return Counter(self).fd

    # Data.

    def recv(self, fd: int, limit: int) -> bytes | int:
        file = self.files.get(fd)
        data = file.receive(limit) if isinstance(file, SimulatedSocket) else -errno.EBADF
        self._note("recv", fd, limit, data)
        return data

    def recv_short(self, fd: int, limit: int) -> bytes | int:
        return self.recv(fd, limit)

    def recv_into(self, fd: int, buffer: Any) -> int:
        with memoryview(buffer) as whole, whole.cast("B") as view:
            data = self.recv(fd, len(view))
            if isinstance(data, bytes):
                view[: len(data)] = data
                return len(data)
            return data

    def send(self, fd: int, data: Any, offset: int) -> int:
        file = self.files.get(fd)
        content = bytes(memoryview(data)[offset:])
        sent = file.transmit(content) if isinstance(file, SimulatedSocket) else -errno.EBADF
        self._note("send", fd, content, sent)
        return sent

    def send_many(self, fd: int, chunks: list[bytes], first: int, offset: int) -> int:
        return self.send(fd, b"".join(chunks[first:]), offset)

    def read(self, fd: int, limit: int) -> bytes | int:
        file = self.files.get(fd)
        if not isinstance(file, Counter):
            return self.recv(fd, limit)
        if not file.count:
            return -errno.EAGAIN
        count, file.count = file.count, 0
        return count.to_bytes(8, "little")

    def read_into(self, fd: int, buffer: Any) -> int:
        return self.recv_into(fd, buffer)

    def write(self, fd: int, data: Any, offset: int) -> int:
        file = self.files.get(fd)
        if not isinstance(file, Counter):
            return self.send(fd, data, offset)
        file.count += int.from_bytes(data, "little")
        file.changed()
        return 8

    def write_many(self, fd: int, chunks: list[bytes], first: int, offset: int) -> int:
        return self.send_many(fd, chunks, first, offset)

    def sendfile(self, target: int, source: int, offset: int, count: int) -> int:
        return -errno.ENOSYS  # Files are no part of this world.

    def file_size(self, fd: int) -> int:
        return -errno.EBADF

    def set_file_position(self, fd: int, offset: int) -> int:
        return -errno.EBADF

    def close(self, fd: int) -> int:
        file = self.files.get(fd)
        if file is None:
            return -errno.EBADF
        file.close()
        return 0

    # Sockets.

    def open_socket(self, family: int, kind: int, protocol: int) -> Any:
        return SimulatedSocket(self, family, kind, protocol)

    def adopt_socket(self, fd: int) -> Any:
        file = self.files.get(fd)
        return file if isinstance(file, SimulatedSocket) else -errno.ENOTSOCK

    def socket_pair(self) -> Any:
        pair = tuple(SimulatedSocket(self, socket.AF_UNIX, socket.SOCK_STREAM, 0) for _ in range(2))
        joined(self, *pair, latency_ns=0)
        for sock in pair:
            sock.establish()
        return pair

    def pipe(self) -> Any:
        return tuple(sock.fd for sock in self.socket_pair())

    def bind(self, sock: Any, address: Any) -> int:
        if sock.family != socket.AF_UNIX:
            host, port, *rest = address
            while not port or (host, port, *rest) in self.bound:
                if port:
                    return -errno.EADDRINUSE
                port = self.random.randint(32768, 60999)
            address = (host, port, *rest)
        elif address in self.modes:
            return -errno.EADDRINUSE
        else:
            self.inodes += 1
            self.modes[address] = (stat.S_IFSOCK | 0o755, self.inodes)
        sock.name = address
        self.bound[address] = sock
        return 0

    def listen(self, sock: Any, backlog: int) -> int:
        sock.backlog = backlog
        return 0

    def accept_descriptor(self, fd: int) -> Any:
        """Return -ENOSYS: sockets of this world are objects only, and `accepts_descriptors` is false."""
        return -errno.ENOSYS

    def open_descriptor(self, family: int, protocol: int) -> int:
        raise AssertionError("there are no descriptors without a socket")

    def connect_descriptor(self, fd: int, family: int, address: Any) -> int:
        raise AssertionError("there are no descriptors without a socket")

    def names_of_descriptor(self, fd: int, peer: Any) -> Any:
        raise AssertionError("there are no descriptors without a socket")

    def descriptor_error(self, fd: int) -> int:
        raise AssertionError("there are no descriptors without a socket")

    def may_accept(self, fd: int) -> bool:
        raise AssertionError("there are no descriptors without a socket")

    def name_of(self, address: bytes) -> Any:
        raise AssertionError("there are no descriptors without a socket")

    def socket_of(self, fd: int, family: int, number: int) -> Any:
        raise AssertionError("there are no descriptors without a socket")

    def accept(self, sock: Any) -> Any:
        self._note("accept", sock.fd, len(sock.waiting))
        if sock.backlog is None:
            return -errno.EINVAL
        if not sock.waiting:
            return -errno.EAGAIN
        connection = sock.waiting.popleft()
        return connection, connection.peer_name

    def connect(self, sock: Any, address: Any) -> int:
        self._note("connect", sock.fd, address)
        if sock.family == socket.AF_UNIX:
            result = self._knock(sock, address, latency_ns=0)
            if result == 0:
                sock.establish()
            return result
        if sock.name[1] == 0:
            self.bind(sock, ("127.0.0.1", 0))
            del self.bound[sock.name]
        self.after(LATENCY_NS, lambda: self._arrive_at(sock, address))
        return -errno.EINPROGRESS

    def _arrive_at(self, sock: SimulatedSocket, address: Any) -> None:
        """Handle a packet that asks the other host for a connection."""
        if sock.fd < 0:
            return
        code = -self._knock(sock, address, LATENCY_NS)
        if code == errno.EAGAIN:
            self.after(RETRY_NS, lambda: self._arrive_at(sock, address))
        elif code:
            self.after(LATENCY_NS, lambda: sock.fail(code))
        else:
            self.after(LATENCY_NS, sock.establish)

    def _knock(self, sock: SimulatedSocket, address: Any, latency_ns: int) -> int:
        listener = self.bound.get(address)
        if listener is None:
            return -(errno.ENOENT if sock.family == socket.AF_UNIX else errno.ECONNREFUSED)
        if listener.backlog is None:
            return -errno.ECONNREFUSED
        if len(listener.waiting) > listener.backlog:
            return -errno.EAGAIN
        connection = SimulatedSocket(self, sock.family, sock.type, sock.proto)
        connection.name = listener.name
        joined(self, sock, connection, latency_ns)
        connection.establish()
        listener.waiting.append(connection)
        listener.changed()
        return 0

    def socket_error(self, sock: Any) -> int:
        return sock.take_error()

    def set_option(self, sock: Any, level: int, option: int, value: Any) -> int:
        sock.setsockopt(level, option, value)
        return 0

    def get_option(self, sock: Any, level: int, option: int) -> int:
        return sock.getsockopt(level, option)

    def socket_name(self, sock: Any) -> Any:
        return sock.name

    def peer_name(self, sock: Any) -> Any:
        return -errno.ENOTCONN if sock.peer_name is None else sock.peer_name

    def shutdown(self, sock: Any, how: int) -> int:
        self._note("shutdown", sock.fd, how)
        if sock.outgoing is None or sock.was_reset:
            return -errno.ENOTCONN
        sock.shutdown(how)
        return 0

    def close_socket(self, sock: Any) -> int:
        self._note("close", sock.fd)
        sock.close()
        return 0

    # Datagrams are no part of this world.

    def receives_many(self) -> bool:
        return False

    def recv_datagrams(self, sock: Any, into: list[Any], limit: int) -> int:
        return -errno.ENOSYS

    def send_datagram(self, sock: Any, data: Any, address: Any) -> int:
        return -errno.ENOSYS

    def send_datagrams(self, sock: Any, queue: list[Any], first: int) -> int:
        return -errno.ENOSYS

    def recvfrom(self, sock: Any, size: int) -> tuple[bytes, Any] | int:
        return -errno.ENOSYS

    def recvfrom_into(self, sock: Any, buffer: Any, size: int) -> tuple[int, Any] | int:
        return -errno.ENOSYS

    def sendto(self, sock: Any, data: Any, address: Any) -> int:
        return -errno.ENOSYS

    def receive_error(self, sock: Any) -> tuple[int, Any] | int:
        return -errno.ENOSYS

    def disconnect(self, sock: Any) -> int:
        return -errno.ENOSYS

    def interface_index(self, name: str) -> int:
        return -errno.ENODEV

    # Files.

    def duplicate(self, fd: int, lowest: int = 0) -> int:
        return -errno.EMFILE  # A file has one descriptor here.

    def close_file(self, file: Any) -> int:
        return self.close_socket(file)

    def set_blocking(self, fd: int, blocking: bool) -> int:
        return 0 if fd in self.files else -errno.EBADF

    def file_flags(self, fd: int) -> int:
        return 2 if fd in self.files else -errno.EBADF  # O_RDWR

    def file_mode(self, fd: int) -> int:
        return stat.S_IFSOCK | 0o777 if fd in self.files else -errno.EBADF

    def pidfd_open(self, pid: int) -> int:
        return -errno.ESRCH

    def receive_descriptors(self, sock: Any, limit: int) -> tuple[bytes, list[int], bool] | int:
        return -errno.EOPNOTSUPP

    def receive_descriptors_into(self, sock: Any, buffer: Any) -> tuple[int, list[int], bool] | int:
        return -errno.EOPNOTSUPP

    def send_descriptors(self, sock: Any, data: Any, fds: list[int]) -> int:
        return -errno.EOPNOTSUPP

    def socket_kind(self, fd: int) -> tuple[int, int] | int:
        return -errno.ENOTSOCK

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

    def status(self, path: str | bytes, follow: bool) -> Any:
        return -errno.ENOSYS

    def random_bytes(self, size: int) -> bytes:
        return bytes(size)

    def inotify_create(self) -> int:
        return -errno.ENOSYS

    def inotify_add(self, fd: int, path: bytes, mask: int) -> int:
        return -errno.EBADF

    def inotify_remove(self, fd: int, watch: int) -> int:
        return -errno.EBADF

    def path_status(self, path: str | bytes) -> tuple[int, int] | int:
        return self.modes.get(path, -errno.ENOENT)

    def unlink(self, path: str | bytes) -> int:
        if path not in self.modes:
            return -errno.ENOENT
        del self.modes[path]
        self.bound.pop(path, None)
        return 0

    def change_mode(self, path: str | bytes, mode: int) -> int:
        if path not in self.modes:
            return -errno.ENOENT
        kind, inode = self.modes[path]
        self.modes[path] = (stat.S_IFMT(kind) | mode, inode)
        return 0


def no_files(kernel: SimulatedKernel, *_: Any, **__: Any) -> Any:
    raise NotImplementedError("there are no files here")


for _name in vars(FileCalls).keys() - vars(SimulatedKernel).keys():
    if not _name.startswith("_"):
        setattr(SimulatedKernel, _name, no_files)


class SimulatedHost(Host):
    """A process without threads and signals, in a world where only numbers are addresses."""

    def is_main_thread(self) -> bool:
        return False

    def main_thread(self) -> int | None:
        return None

    def process_id(self) -> int:
        return 1

    def set_wakeup_fd(self, fd: int) -> int:
        return -1

    def set_signal(self, number: int, handler: Any) -> Any:
        raise NotImplementedError("there are no signals here")

    def get_signal(self, number: int) -> Any:
        raise NotImplementedError("there are no signals here")

    def restore_signal(self, number: int, handler: Any) -> None:
        raise NotImplementedError("there are no signals here")

    def raise_signal(self, number: int) -> None:
        raise NotImplementedError("there are no signals here")

    def thread_pool(self) -> Any:
        raise NotImplementedError("there are no threads here")

    def has_plain_numbers(self) -> bool:
        return False

    def getaddrinfo(
        self, host: Any, port: Any, family: int = 0, kind: int = 0, protocol: int = 0, flags: int = 0
    ) -> list[tuple[Any, ...]]:
        raise socket.gaierror(socket.EAI_NONAME, "there are no names here")

    def getnameinfo(self, address: Any, flags: int = 0) -> tuple[str, str]:
        raise socket.gaierror(socket.EAI_NONAME, "there are no names here")

    def spawn(self, args: Any, **options: Any) -> Any:
        raise NotImplementedError("there are no programs here")

    def reap(self, pid: int, pidfd: int) -> int | None:
        raise ChildProcessError("there are no children here")

    def signal_child(self, pid: int, pidfd: int, number: int) -> None:
        raise ProcessLookupError("there are no children here")

    def kill(self, pid: int, number: int) -> None:
        raise ProcessLookupError("there are no processes here")

    def await_exit(self, pid: int, callback: Callable[[], object]) -> None:
        raise NotImplementedError("there are no threads here")
