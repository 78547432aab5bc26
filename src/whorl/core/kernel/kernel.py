"""The kernel: every system call the loop makes, and the time, through one object.

The loop asks its kernel for everything that lies outside the process. So a program can replace the world by
another kernel. A subclass that overrides these methods may be a simulated network in virtual time, or the
real one that refuses and shortens calls on purpose.

The rules of the interface:

* A call returns its result or the negative error number. Only misuse raises (a wrong type, an
  address that cannot be converted, a host name that cannot be resolved).
* Calls on the data path take descriptors. Calls with addresses or options take socket objects,
  because Python's `socket` knows every address family. They work on any object that `open_socket` made.
* No call blocks but `epoll_wait` and the calls for files, which are made in threads.

Compiled, the data path calls libc directly. Uncompiled, the functions below do the same by `os`, `socket`
and `select`. Both builds behave alike, except that an uncompiled sleep is rounded up to milliseconds.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import sys
import time
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any, Literal

from whorl.core import limits
from whorl.core.kernel.errors import negative_errno
from whorl.core.kernel.sockets import ACCEPTS_DESCRIPTORS, SocketCalls

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

    Transfer = Literal["socket", "file"]

if not cython.compiled:
    import socket
    from collections.abc import Callable

    from whorl.core.kernel.socket_overrides import SOCKET

    _STALE = 0xFFFFFFFF  # a generation that no watch has
    _CLOCK = (time.monotonic_ns,)  # hidden from tools that replace functions in all modules

    def monotonic_ns() -> int:
        """Return the monotonic clock, in nanoseconds."""
        return _CLOCK[0]()

    read_ticks = monotonic_ns

    def look_and_note() -> bool:
        """Look at a watched clock, and remember the answer; uncompiled, it is not watched."""
        return False

    def watch_time() -> bool:
        """Return whether changes in `time` are noticed; uncompiled, they are not."""
        return False

    def new_scratch() -> bytearray:
        """Return an empty buffer: uncompiled, received data lands in a bytes object at once."""
        return bytearray()

    # A socket is read and written like any file.
    file_read: Any = os.read
    file_write: Any = os.write
    socket_recv = file_read
    socket_send = file_write

    def push_held(fd: int) -> int:
        """Set TCP_NODELAY, which sends what is held."""
        try:
            _with_socket(fd, lambda sock: sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1))
        except OSError as error:
            return negative_errno(error)
        return 0

    def _with_socket(fd: int, call: Callable[[socket.socket], Any]) -> Any:
        """Return the result of a call of a socket object for a descriptor, which stays open."""
        sock = SOCKET(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, fd)
        try:
            return call(sock)
        finally:
            sock.detach()

    def _send_more(fd: int, data: Buffer) -> int:
        return int(_with_socket(fd, lambda sock: sock.send(data, socket.MSG_MORE | socket.MSG_DONTWAIT)))

    socket_send_more: Any = _send_more

    def receive(kernel: Kernel, transfer: Any, fd: int, limit: int) -> bytes | int:
        """Return the result of a read, as bytes."""
        if limit > sys.maxsize:
            raise OverflowError(f"a limit of {limit} bytes does not fit a C ssize_t")
        try:
            data: bytes = transfer(fd, limit if limit < limits.READ_SIZE else limits.READ_SIZE)
        except OSError as error:
            return negative_errno(error)
        return data

    receive_short = receive

    def receive_into(transfer: Any, fd: int, buffer: Buffer) -> int:
        """Read into a buffer; return the number of bytes."""
        try:
            return os.readv(fd, (buffer,))
        except OSError as error:
            return negative_errno(error)

    def transmit(transfer: Any, fd: int, data: Buffer, offset: int) -> int:
        """Send `data` from `offset` on."""
        try:
            if not offset:
                return int(transfer(fd, data))
            with memoryview(data) as whole:
                if not 0 <= offset <= len(whole):
                    return -errno.EINVAL
                with whole[offset:] as rest:
                    return int(transfer(fd, rest))
        except OSError as error:
            return negative_errno(error)

    def transmit_vectors(is_socket: bool, fd: int, chunks: list[bytes], first: int, offset: int) -> int:
        """Send several chunks, the first of them from `offset` on."""
        if not (0 <= first < len(chunks) and 0 <= offset <= len(chunks[first])):
            return -errno.EINVAL
        vectors: list[Any] = chunks[first : first + limits.WRITE_VECTORS]
        if offset:
            vectors[0] = memoryview(vectors[0])[offset:]
        try:
            return os.writev(fd, vectors)
        except OSError as error:
            return negative_errno(error)

    def send_file(target: int, source: int, offset: int, count: int) -> int:
        """Send from a file to a socket."""
        try:
            return os.sendfile(target, source, offset, count)
        except OSError as error:
            return negative_errno(error)

    def event_buffer(batch: EventBatch) -> bytearray:
        """Return an empty buffer: uncompiled, events are rows of a list."""
        return bytearray()

    def batch_size(batch: EventBatch) -> int:
        return len(batch._rows)

    def batch_fd(batch: EventBatch, index: int) -> int:
        return batch._rows[index][0]

    def batch_mask(batch: EventBatch, index: int) -> int:
        return batch._rows[index][1]

    def batch_generation(batch: EventBatch, index: int) -> int:
        return batch._rows[index][2]

    def batch_put(batch: EventBatch, fd: int, mask: int, generation: int) -> None:
        if len(batch._rows) >= limits.EVENTS_PER_POLL:
            raise IndexError("the batch is full")
        batch._rows.append((fd, mask, generation))

    # The standard library's epoll tags events with the descriptor alone, so the generations are
    # kept here. If the kernel refused to end a watch, the watch is noted as stale.

    def new_epoll(kernel: Kernel) -> int:
        try:
            epoll = select.epoll()
        except OSError as error:
            return negative_errno(error)
        kernel._epolls[epoll.fileno()] = (epoll, {})
        return epoll.fileno()

    def change_watch(kernel: Kernel, epfd: int, operation: int, fd: int, mask: int, generation: int) -> int:
        epoll, generations = kernel._epolls[epfd]
        try:
            if operation == 1:
                epoll.register(fd, mask)
            elif operation == 3:
                epoll.modify(fd, mask)
            else:
                epoll.unregister(fd)
        except OSError as error:
            if operation == 2:
                generations[fd] = _STALE
            return negative_errno(error)
        if operation == 2:
            generations.pop(fd, None)
        elif operation == 1 and fd in generations:
            # The former file was closed underneath its watch, which lives on if a duplicate does.
            generations[fd] = _STALE
        elif generations.get(fd) != _STALE:
            generations[fd] = generation
        return 0

    def wait_for_events(kernel: Kernel, epfd: int, timeout_ns: int, batch: EventBatch) -> int:
        epoll, generations = kernel._epolls[epfd]
        try:
            if timeout_ns == 0:
                found = epoll.poll(0, limits.EVENTS_PER_POLL)
            elif kernel.spin_ns > 0:
                found = spin_and_sleep(kernel, epoll.poll, timeout_ns)
            else:
                found = sleep(kernel, epoll.poll, timeout_ns)
        except OSError as error:
            return negative_errno(error)
        if not found:
            return 0
        batch._rows = [(fd, mask, generations.get(fd, _STALE)) for fd, mask in found]
        return len(found)

    def spin_and_sleep(kernel: Kernel, poll: Any, timeout_ns: int) -> Any:
        """Poll again and again for `spin_ns`, then sleep."""
        began = monotonic_ns()
        spin_ns = min(kernel.spin_ns, limits.LONGEST_SPIN_NS)
        while (spent := monotonic_ns() - began) < spin_ns and (timeout_ns < 0 or spent < timeout_ns):
            if found := poll(0, limits.EVENTS_PER_POLL):
                return found
        return sleep(kernel, poll, max(0, timeout_ns - spent) if timeout_ns > 0 else timeout_ns)

    def sleep(kernel: Kernel, poll: Any, timeout_ns: int) -> Any:
        """Poll with a timeout, and block a signal meanwhile if the program asked for that."""
        seconds = timeout_ns / 1e9 if timeout_ns >= 0 else None
        if not kernel.blocked_signal:
            return poll(seconds, limits.EVENTS_PER_POLL)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (kernel.blocked_signal,))
        try:
            return poll(seconds, limits.EVENTS_PER_POLL)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def new_eventfd() -> int:
        try:
            return os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError as error:
            return negative_errno(error)

    def close_descriptor(kernel: Kernel, fd: int) -> int:
        epoll, _ = kernel._epolls.pop(fd, (None, None))
        try:
            if epoll is not None:
                epoll.close()
            else:
                os.close(fd)
        except OSError as error:
            return negative_errno(error)
        return 0


def patched_clock() -> float:
    """Return the time by the function that has replaced `time.monotonic`, in seconds."""
    return time.monotonic()


_time_names = vars(time)
_is_clock_patched = -1  # whether a Python function has replaced `time.monotonic`; -1: unknown
_are_names_watched = watch_time()


def look_at_clock() -> bool:
    """Return whether a Python function has replaced `time.monotonic`."""
    if _are_names_watched:
        return look_and_note()
    return type(_time_names["monotonic"]) is not BuiltinFunctionType


if not cython.compiled:
    clock_is_patched = look_at_clock


class EventBatch:
    """The events of one `epoll_wait`: descriptor, mask and generation of each."""

    def __init__(self) -> None:
        self._buffer = event_buffer(self)
        self._count = 0
        self._rows: list[tuple[int, int, int]] = []

    def __len__(self) -> int:
        """Return the number of events."""
        return batch_size(self)

    def fd(self, index: int) -> int:
        """Return the descriptor of an event."""
        return batch_fd(self, index)

    def mask(self, index: int) -> int:
        """Return the epoll mask of an event."""
        return batch_mask(self, index)

    def generation(self, index: int) -> int:
        """Return the generation that was given with the watch."""
        return batch_generation(self, index)

    def put(self, fd: int, mask: int, generation: int) -> None:
        """Add an event; for kernels written in Python."""
        batch_put(self, fd, mask, generation)

    def clear(self) -> None:
        """Forget all events; for kernels written in Python, before `put`."""
        self._count = 0
        self._rows = []


class Kernel(SocketCalls):
    """The real kernel, and the interface of every other.

    Its calls for socket objects stand in `core/kernel/sockets`, those for files in `core/kernel/files`, those
    for datagrams in `core/kernel/datagrams`.
    """

    def __init__(self) -> None:
        SocketCalls.__init__(self)
        self._scratch = new_scratch()  # where short messages are received
        self._epolls: dict[int, Any] = {}  # uncompiled: the epoll objects by descriptor
        self._fine_sleep = True  # whether this kernel sleeps in nanoseconds (epoll_pwait2)
        self.blocked_signal: int = 0  # a signal that is blocked during a sleep; 0: none
        self.spin_ns: int = 0  # the time for which `epoll_wait` polls before it sleeps
        # Whether edge-triggered events are reliable. Uncompiled they are not: a signal handler may
        # raise between the kernel's answer and the queue, and an edge lost there is lost for ever.
        self.keeps_edges: bool = bool(cython.compiled)
        # Whether a busy loop may leave out polls. A simulated world counts them: its traces depend on it.
        self.may_skip_polls: bool = type(self) is Kernel
        # Whether connections may be accepted without a socket object. Other kernels may know nothing else.
        self.accepts_descriptors: bool = ACCEPTS_DESCRIPTORS and type(self) is Kernel

    def now(self) -> int:
        """Return the monotonic clock, in nanoseconds (man 3 clock_gettime)."""
        return monotonic_ns()

    def seconds(self) -> float:
        """Return the monotonic clock, in seconds."""
        return self.now() / 1e9

    def ticks(self) -> int:
        """Return a counter that is cheaper than the clock, and that advances at least once a nanosecond.

        The difference of two counts is an upper bound of the time between them. The counter may jump.
        """
        return read_ticks()

    def random_bytes(self, size: int) -> bytes:
        """Return unpredictable bytes; this may block soon after the system's start (man 2 getrandom)."""
        return os.urandom(size)

    # Data, by descriptor.

    def recv(self, fd: int, limit: int) -> bytes | int:
        """Receive from a stream socket; return no bytes at its end (man 2 recv).

        With a limit from LONG_READ to below READ_SIZE, the call receives into the result's own memory.
        """
        return receive(self, socket_recv, fd, limit)

    def recv_short(self, fd: int, limit: int) -> bytes | int:
        """Receive as `recv` does if little data is expected: it is copied out of reused memory."""
        if type(self) is not Kernel:
            return self.recv(fd, limit)
        return receive_short(self, socket_recv, fd, limit)

    def recv_into(self, fd: int, buffer: Buffer) -> int:
        """Receive into a writable buffer; return the number of bytes, 0 at the end."""
        return receive_into(socket_recv, fd, buffer)

    def send(self, fd: int, data: Buffer, offset: int) -> int:
        """Send `data` from `offset` on; return how many bytes the kernel took (man 2 send)."""
        return transmit(socket_send, fd, data, offset)

    def send_more(self, fd: int, data: Buffer, offset: int) -> int:
        """Send as `send` does by TCP, but make no packet that is not full: let the kernel hold the rest.

        The rest leaves with the next `send`, by `push`, with the end of the stream, or after 0.2 s (man 7
        tcp, TCP_CORK). The kernel has it: the process may end.
        """
        return transmit(socket_send_more, fd, data, offset)

    def push(self, fd: int) -> int:
        """Let what is held leave now; return 0 or `-errno`. It sets TCP_NODELAY (man 7 tcp)."""
        return push_held(fd)

    def send_many(self, fd: int, chunks: list[bytes], first: int, offset: int) -> int:
        """Send the chunks from `first` on in one call, the first one from `offset` on."""
        return transmit_vectors(True, fd, chunks, first, offset)

    def read(self, fd: int, limit: int) -> bytes | int:
        """Read from a pipe or another file; return no bytes at its end (man 2 read)."""
        return receive(self, file_read, fd, limit)

    def read_into(self, fd: int, buffer: Buffer) -> int:
        """Read into a writable buffer."""
        return receive_into(file_read, fd, buffer)

    def write(self, fd: int, data: Buffer, offset: int) -> int:
        """Write `data` from `offset` on; return how many bytes the kernel took (man 2 write)."""
        return transmit(file_write, fd, data, offset)

    def write_many(self, fd: int, chunks: list[bytes], first: int, offset: int) -> int:
        """Write the chunks from `first` on in one call, the first one from `offset` on."""
        return transmit_vectors(False, fd, chunks, first, offset)

    def sendfile(self, target: int, source: int, offset: int, count: int) -> int:
        """Send at most `count` bytes of the file `source`, from `offset` on, to the socket `target`.

        Return how many bytes were sent, 0 at the file's end (man 2 sendfile).
        """
        return send_file(target, source, offset, count)

    def close(self, fd: int) -> int:
        """Close a descriptor (man 2 close)."""
        return close_descriptor(self, fd)

    # Readiness.

    def epoll_create(self) -> int:
        """Return a new epoll (man 2 epoll_create1)."""
        return new_epoll(self)

    def epoll_ctl(self, epfd: int, operation: int, fd: int, mask: int, generation: int) -> int:
        """Change a watch; its events will carry `generation` (man 2 epoll_ctl)."""
        return change_watch(self, epfd, operation, fd, mask, generation)

    def epoll_wait(self, epfd: int, timeout_ns: int, events: EventBatch) -> int:
        """Sleep for events; return their number, or -EINTR if a signal ended the sleep (man 2 epoll_wait).

        The caller runs the signal's handler afterwards. Uncompiled, Python runs it, and the sleep goes on.
        """
        return wait_for_events(self, epfd, timeout_ns, events)

    def eventfd(self) -> int:
        """Return a new non-blocking counter, 0 at first (man 2 eventfd)."""
        return new_eventfd()

    # Other descriptors.

    def pipe(self) -> tuple[int, int] | int:
        """Return the read end and the write end of a new non-blocking pipe (man 2 pipe2)."""
        try:
            ends = os.pipe()
        except OSError as error:
            answer: tuple[int, int] | int = negative_errno(error)
        else:
            for fd in ends:
                os.set_blocking(fd, False)
            answer = ends
        return answer

    def duplicate(self, fd: int, lowest: int = 0) -> int:
        """Duplicate a descriptor; the new one is not below `lowest` (man 2 fcntl, F_DUPFD_CLOEXEC)."""
        try:
            result = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, lowest)
        except OSError as error:
            result = negative_errno(error)
        return result

    def set_blocking(self, fd: int, blocking: bool) -> int:
        """Set or clear the blocking mode of a descriptor (man 2 fcntl)."""
        code = 0
        try:
            os.set_blocking(fd, blocking)
        except OSError as error:
            code = negative_errno(error)
        return code

    def file_flags(self, fd: int) -> int:
        """Return a descriptor's access mode and flags, or the negative error number (fcntl, F_GETFL)."""
        try:
            result = fcntl.fcntl(fd, fcntl.F_GETFL)
        except OSError as error:
            result = negative_errno(error)
        return result

    def file_mode(self, fd: int) -> int:
        """Return the type and mode of a file, or the negative error number (man 2 fstat)."""
        try:
            result = os.fstat(fd).st_mode
        except OSError as error:
            result = negative_errno(error)
        return result

    def close_file(self, file: Any) -> int:
        """Close a file object and its descriptor."""
        code = 0
        try:
            file.close()
        except OSError as error:
            code = negative_errno(error)
        return code

    # Files that are sent.

    def file_size(self, fd: int) -> int:
        """Return the size of a file in bytes, or the negative error number (man 2 fstat)."""
        try:
            result = os.fstat(fd).st_size
        except OSError as error:
            result = negative_errno(error)
        return result

    def set_file_position(self, fd: int, offset: int) -> int:
        """Set the position from which the file is read on (man 2 lseek, SEEK_SET)."""
        code = 0
        try:
            os.lseek(fd, offset, os.SEEK_SET)
        except OSError as error:
            code = negative_errno(error)
        return code

    # Children.

    def pidfd_open(self, pid: int) -> int:
        """Return a descriptor for a child, readable when it has ended (man 2 pidfd_open)."""
        try:
            result = os.pidfd_open(pid)
        except OSError as error:
            result = negative_errno(error)
        return result
