"""The sockets of a world: what `socket` and `select` make and answer there."""

from __future__ import annotations

import io
import os
import select
import socket
from asyncio import base_events
from typing import Any

from whorl.sim.errors import BlockingSocket, OtherLoop, Unsimulated
from whorl.sim.files.file import File
from whorl.sim.patches.current import RUNNING, Replacement, host
from whorl.sim.process.socket import SimSocket

_plain_new = socket.socket.__new__


def _new_socket(cls: type, *args: Any, **options: Any) -> Any:
    """Make the socket object: in a world, one of the host whose code runs."""
    if not RUNNING.has_sockets or cls is SimSocket:
        return _plain_new(cls)
    if cls is not socket.socket:
        raise Unsimulated(f"a socket of class {cls.__name__} was made")
    return _open(*args, **options)


def _open(
    family: int = -1,
    type: int = -1,  # noqa: A002 (as Python calls it)
    proto: int = -1,
    fileno: Any = None,
) -> Any:
    kernel = host().kernel
    family = socket.AF_INET if family in (-1, None) else family
    kind = socket.SOCK_STREAM if type in (-1, None) else type
    if fileno is not None:
        made: Any = kernel.adopt_socket(fileno)
    else:
        made = kernel.make_socket(family, kind, max(proto, 0))
    _raise(made)
    made.settimeout(0.0 if kind & socket.SOCK_NONBLOCK else socket.getdefaulttimeout())
    return made


def _raise(answer: Any) -> None:
    if isinstance(answer, int):
        raise OSError(-answer, os.strerror(-answer))


def _socketpair(*kind: Any, **options: Any) -> Any:
    pair = host().kernel.socket_pair()
    _raise(pair)
    for sock in pair:
        sock.setblocking(True)
    return pair


def _fromfd(fd: int, *kind: Any, **options: Any) -> Any:
    kernel = host().kernel
    copy = kernel.duplicate(fd)
    _raise(None if copy >= 0 else copy)
    sock = kernel.adopt_socket(copy)
    _raise(sock)
    sock.setblocking(True)
    return sock


def _look_up(
    host_name: Any,
    port: Any,
    family: int = 0,
    type: int = 0,  # noqa: A002 (as Python calls it)
    proto: int = 0,
    flags: int = 0,
) -> Any:
    answers = host().look_up(host_name, port, family, type, proto, flags)
    return [(socket.AddressFamily(each[0]), socket.SocketKind(each[1]), *each[2:]) for each in answers]


def _name_of(address: Any, flags: int) -> tuple[str, str]:
    return host().process.getnameinfo(address, flags)


def _by_name(name: str) -> str:
    return _look_up(name, None, socket.AF_INET)[0][4][0]  # type: ignore[no-any-return]


def _by_name_ex(name: str) -> tuple[str, list[str], list[str]]:
    found = _look_up(name, None, socket.AF_INET, socket.SOCK_STREAM)
    return name, [], [each[4][0] for each in found]


def _host_name() -> str:
    return host().name


_INVALID, _ALWAYS = select.POLLNVAL, select.POLLERR | select.POLLHUP


class _Poll:
    """`select.poll` over simulated descriptors. It never waits."""

    def __init__(self) -> None:
        self._masks: dict[int, int] = {}

    def register(self, fd: Any, mask: int = 0b111) -> None:
        self._masks[_number(fd)] = mask

    modify = register

    def unregister(self, fd: Any) -> None:
        del self._masks[_number(fd)]

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        found = []
        for fd, mask in self._masks.items():
            file = host().kernel.table.files.get(fd)
            seen = _INVALID if file is None else _ready(file) & (mask | _ALWAYS)
            if seen:
                found.append((fd, seen))
        if not found and (timeout is None or timeout > 0):
            raise BlockingSocket("select.poll would wait")
        return found


def _ready(file: File) -> int:
    return file.readiness()  # the bits of poll are those of epoll


def _number(fd: Any) -> int:
    return fd if isinstance(fd, int) else int(fd.fileno())


def _select(readers: Any, writers: Any, others: Any, timeout: float | None = None) -> Any:
    files = host().kernel.table.files

    def those(given: Any, mask: int) -> list[Any]:
        ready = ((each, files.get(_number(each))) for each in given)
        return [each for each, file in ready if file is not None and file.readiness() & mask]

    readable, writable = those(readers, select.POLLIN | select.POLLHUP), those(writers, select.POLLOUT)
    if not readable and not writable and timeout != 0:
        raise BlockingSocket("select.select would wait")
    return readable, writable, []


def _epoll(*args: Any, **options: Any) -> Any:
    raise OtherLoop("select.epoll was called")


def _other_loop(self: Any) -> None:
    self._closed = True  # for its finalizer
    raise OtherLoop(f"a loop of class {type(self).__name__} was made")


class SimFile(io.RawIOBase):
    """A file object over a simulated descriptor, as `os.fdopen` makes one."""

    def __init__(self, fd: int, mode: str) -> None:
        super().__init__()
        self._fd = fd
        self.mode = mode

    def fileno(self) -> int:
        return self._fd

    def readable(self) -> bool:
        return "r" in self.mode or "+" in self.mode

    def writable(self) -> bool:
        return "r" not in self.mode or "+" in self.mode

    def readinto(self, buffer: Any) -> int | None:
        with memoryview(buffer) as view, view.cast("B") as room:
            data = _read(self._fd, len(room))
            room[: len(data)] = data
            return len(data)

    def write(self, data: Any) -> int:
        return _write(self._fd, data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            if RUNNING.world is not None:
                _close(self._fd)


_fdopen = os.fdopen


def _open_number(fd: int, mode: str = "r", buffering: int = -1, *rest: Any, **options: Any) -> Any:
    if fd not in host().kernel.table.files:
        return _fdopen(fd, mode, buffering, *rest, **options)
    raw = SimFile(fd, mode)
    if buffering == 0:
        return raw
    buffered: Any = io.BufferedReader(raw) if raw.readable() else io.BufferedWriter(raw)
    return buffered if "b" in mode else io.TextIOWrapper(buffered, *rest, **options)


_os_read, _os_write, _os_close, _os_pipe = os.read, os.write, os.close, os.pipe
_fstat, _set_blocking, _dup = os.fstat, os.set_blocking, os.dup


def _read(fd: int, size: int) -> bytes:
    kernel = host().kernel
    if fd not in kernel.table.files:
        return _os_read(fd, size)
    data = kernel.recv(fd, size)
    _raise(data)
    return data  # type: ignore[return-value]


def _write(fd: int, data: Any) -> int:
    kernel = host().kernel
    if fd not in kernel.table.files:
        return _os_write(fd, data)
    sent = kernel.send(fd, data, 0)
    _raise(None if sent >= 0 else sent)
    return sent


def _close(fd: int) -> None:
    kernel = host().kernel
    if fd not in kernel.table.files:
        _os_close(fd)
    else:
        kernel.close(fd)


def _pipe() -> tuple[int, int]:
    ends = host().kernel.pipe()
    _raise(ends)
    return ends  # type: ignore[return-value]


def _set_mode(fd: int, blocking: bool) -> None:
    if fd not in host().kernel.table.files:
        _set_blocking(fd, blocking)


def _duplicate(fd: int) -> int:
    kernel = host().kernel
    if fd not in kernel.table.files:
        return _dup(fd)
    copy = kernel.duplicate(fd)
    _raise(None if copy >= 0 else copy)
    return copy


SOCKETS: list[Replacement] = [
    (socket, "socketpair", _socketpair),
    (socket, "fromfd", _fromfd),
    (socket, "getaddrinfo", _look_up),
    (socket, "getnameinfo", _name_of),
    (socket, "gethostbyname", _by_name),
    (socket, "gethostbyname_ex", _by_name_ex),
    (socket, "gethostname", _host_name),
    (select, "poll", _Poll),
    (select, "select", _select),
    (select, "epoll", _epoll),
    (os, "read", _read),
    (os, "write", _write),
    (os, "close", _close),
    (os, "pipe", _pipe),
    (os, "set_blocking", _set_mode),
    (os, "dup", _duplicate),
    (os, "fdopen", _open_number),
    (base_events.BaseEventLoop, "__init__", _other_loop),
]


def take_socket_class() -> None:
    """Let `socket.socket` ask which world runs, from now on; outside a world it makes what it made."""
    if socket.socket.__new__ is not _new_socket:
        socket.socket.__new__ = _new_socket  # type: ignore[method-assign]
