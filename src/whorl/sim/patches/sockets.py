"""The sockets of a world: what `socket` and `select` make and answer there."""

from __future__ import annotations

import errno
import os
import select
import selectors
import socket
from asyncio import base_events
from typing import Any

from whorl.sim.errors import BlockingSocket, OtherLoop, Unsimulated
from whorl.sim.files.file import File
from whorl.sim.patches.current import RUNNING, Replacement, host
from whorl.sim.patches.descriptors import DESCRIPTORS
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


def _socketpair(
    family: Any = None,
    type: int = socket.SOCK_STREAM,  # noqa: A002 (as Python calls it)
    proto: int = 0,
) -> Any:
    is_local = family in (None, socket.AF_UNIX)
    pair: Any = host().kernel.socket_pair(type & 0xF) if is_local else -errno.EOPNOTSUPP
    _raise(pair)
    for sock in pair:
        sock.settimeout(0.0 if type & socket.SOCK_NONBLOCK else socket.getdefaulttimeout())
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


class _PollWithin(_Poll):
    """The simulated `select.poll` in the place of `select.epoll`, for `selectors.EpollSelector`."""

    def poll(self, timeout: float | None = None, most: int = -1) -> list[tuple[int, int]]:
        return super().poll(None if timeout is None or timeout < 0 else timeout)

    def close(self) -> None:
        self._masks.clear()

    def fileno(self) -> int:
        raise Unsimulated("EpollSelector.fileno was called")


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
    (selectors.PollSelector, "_selector_cls", _Poll),
    (selectors.SelectSelector, "_select", staticmethod(_select)),
    (selectors.EpollSelector, "_selector_cls", _PollWithin),
    (base_events.BaseEventLoop, "__init__", _other_loop),
    *DESCRIPTORS,
]


def take_socket_class() -> None:
    """Let `socket.socket` ask which world runs, from now on; outside a world it makes what it made."""
    if socket.socket.__new__ is not _new_socket:
        socket.socket.__new__ = _new_socket  # type: ignore[method-assign]
