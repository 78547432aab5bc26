"""Whorl's loop as the suite knows asyncio's: it sees mocked modules, and answers to some private names."""

import contextlib
import errno
import os
import signal
import socket
import sys
import threading
from asyncio import base_events, unix_events
from typing import Any
from unittest.mock import Mock

import whorl
from whorl.aio.connections.acceptor import Acceptor
from whorl.aio.connections.server import Server
from whorl.core.kernel.errors import negative_errno
from whorl.core.kernel.kernel import Kernel
from whorl.core.process.host import Host
from whorl.core.states import Event
from whorl.handles import Idle


class SuiteKernel(Kernel):
    """The real kernel; while a test mocks asyncio's `socket` module, sockets are made by the mock."""

    def __init__(self) -> None:
        super().__init__()
        self.may_skip_polls = True
        self.mocked_kind = 0

    def open_socket(self, family: int, kind: int, protocol: int) -> Any:
        mocks = [module.socket for module in (base_events, unix_events) if module.socket is not socket]
        if not mocks:
            return super().open_socket(family, kind, protocol)
        self.mocked_kind = kind
        try:
            sock = mocks[0].socket(family=family, type=kind, proto=protocol)
        except OSError as error:
            return negative_errno(error)
        try:
            sock.setblocking(False)
        except OSError as error:
            sock.close()
            return negative_errno(error)
        return sock

    def pidfd_open(self, pid: int) -> int:
        can_use_pidfd = getattr(unix_events, "can_use_pidfd", None)
        if isinstance(can_use_pidfd, Mock) and not can_use_pidfd():
            return -errno.ENOSYS
        return super().pidfd_open(pid)

    def bind(self, sock: Any, address: Any) -> int:
        try:
            return super().bind(sock, address)
        except OSError:  # A mock's error has no number.
            if self.mocked_kind == socket.SOCK_DGRAM:
                raise  # It is asked for again.
            return -errno.EIO

    def listen(self, sock: Any, backlog: int) -> int:
        if not isinstance(sock.fileno(), int):
            raise ValueError(f"Invalid file object: {sock!r}")  # As asyncio's selector does, of a mock.
        return super().listen(sock, backlog)

    def close_socket(self, sock: Any) -> int:
        try:
            return super().close_socket(sock)
        except OSError:
            return -errno.EIO

    def accept(self, sock: Any) -> Any:
        try:
            return super().accept(sock)
        except BlockingIOError:
            return -errno.EAGAIN


class SuiteHost(Host):
    """The real process; while a test mocks asyncio's `signal` or `socket` module, the mock is asked."""

    def __init__(self) -> None:
        self._mocked_wakeup_fd = -1
        self.threads: dict[int, threading.Thread] = {}  # those that wait for children

    def set_wakeup_fd(self, fd: int) -> int:
        if unix_events.signal is signal:
            return super().set_wakeup_fd(fd)
        unix_events.signal.set_wakeup_fd(fd)
        before, self._mocked_wakeup_fd = self._mocked_wakeup_fd, fd
        return before

    def set_signal(self, number: int, handler: Any) -> Any:
        if unix_events.signal is signal:
            return super().set_signal(number, handler)
        return unix_events.signal.signal(number, handler)

    def reap(self, pid: int, pidfd: int) -> int | None:
        if isinstance(os.waitpid, Mock):
            os.waitpid(pid, 0)
        return super().reap(pid, pidfd)

    def await_exit(self, pid: int, callback: Any) -> None:
        super().await_exit(pid, callback)
        for thread in threading.enumerate():
            if thread.name == f"whorl-child-{pid}":
                self.threads[pid] = thread

    def getaddrinfo(self, host: Any, port: Any, *rest: Any) -> Any:
        return base_events.socket.getaddrinfo(host, port, *rest)


class Client:
    """A stand-in for the client of a server that is told of an unknown client."""


def count_clients(server_class: Any) -> None:
    """Let servers be told of clients by asyncio's private names as it was before 3.13."""
    attach, detach, client = server_class._attach, server_class._detach, Client()
    server_class._attach = lambda server, transport=client: attach(server, transport)
    server_class._detach = lambda server, transport=client: detach(server, transport)


if sys.version_info < (3, 13):
    count_clients(Server)


class NothingWatched:
    """A selector for asyncio's own transports, which some tests drive by hand and show."""

    def get_key(self, fd: int) -> Any:
        raise KeyError(fd)


with contextlib.closing(whorl.new_event_loop()) as _made:
    _Made: Any = type(_made)  # on 3.13 without the GIL, the class with Whorl's own tasks


class EventLoop(_Made):  # type: ignore[misc]
    """The loop that replaces asyncio's; the suite finds what it calls by asyncio's private names."""

    def __init__(self, selector: Any = None, **options: Any) -> None:
        super().__init__(selector, **{"kernel": SuiteKernel(), "host": SuiteHost()} | options)
        if sys.version_info >= (3, 14):
            watch = "_PidfdChildWatcher" if unix_events.can_use_pidfd() else "_ThreadedChildWatcher"
            self._watcher = getattr(unix_events, watch)()
            if isinstance(self._host, SuiteHost):
                self._host.threads = getattr(self._watcher, "_threads", {})

    _selector: Any = NothingWatched()

    def _stop_serving(self, sock: socket.socket) -> None:
        self.remove_reader(sock)
        sock.close()

    def _check_signal(self, number: Any) -> None:
        self.remove_signal_handler(number)

    def _handle_signal(self, number: int) -> None:
        self._signal_arrived(number)

    def _accept_connection(self, protocol_factory: Any, sock: Any, *options: Any) -> None:
        acceptor = Acceptor.__new__(Acceptor)
        acceptor._event_loop, acceptor._sock, acceptor._kind = self, sock, None
        if not whorl.compiled:  # where attributes that nobody has set do not read as nothing
            acceptor._handle_state, acceptor._accepted = 0, []
        acceptor._on_events(Event.READABLE)

    def start_idle(self, callback: Any) -> Idle:
        """Call back between two turns, and never sleep."""
        idle = Idle(self)
        idle.unref()
        idle.start(callback)
        return idle
