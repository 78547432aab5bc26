"""The listener: connections that are gone, exhausted resources, and sockets that fail."""

from __future__ import annotations

import errno
import resource
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.core.loop_fakes import SECOND, ObedientClock, run_turns
from tests.handles.pairs import Kind, Stream
from whorl.core import Loop, RunMode
from whorl.core.limits import ACCEPTS_PER_EVENT
from whorl.handles import Timer


class Refusing(ObedientClock):
    """A kernel that refuses to accept as often as it was told, in virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals: list[int] = []
        self.asked = 0

    def accept(self, sock: Any) -> Any:
        self.asked += 1
        if self.refusals:
            return -self.refusals.pop(0)
        return super().accept(sock)


@pytest.fixture
def kernel() -> Refusing:
    return Refusing()


@pytest.fixture
def loop(kernel: Refusing, no_leak: None) -> Iterator[Loop]:
    loop = Loop(kernel=kernel)
    yield loop
    for handle in loop.walk():
        handle.close()
    loop.run(RunMode.NOWAIT)
    loop.close()


def run_machine(loop: Loop) -> None:
    """Make one turn in libuv's order."""
    loop.run(RunMode.NOWAIT)


IN_BOTH_ORDERS = pytest.mark.parametrize("run_once", [run_machine, run_turns], ids=["machine", "asyncio"])


class Guests:
    """Accepts every connection, and notes errors."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.accepted: list[Stream] = []
        self.errors: list[int | None] = []

    def __call__(self, server: Stream, error: OSError | None) -> None:
        if error is not None:
            self.errors.append(error.errno)
        else:
            self.accepted.append(self.kind.handle(server.loop))
            server.accept(self.accepted[len(self.accepted) - 1])


def connect(loop: Loop, kind: Kind, server: Stream, count: int) -> None:
    """Let `count` clients connect, without a turn of the loop."""
    for _ in range(count):
        kind.handle(loop).connect(server.getsockname())


def test_listener_accepts_one_connection_in_each_turn(loop: Loop, kind: Kind) -> None:
    guests = Guests(kind)
    server = kind.server(loop, guests)
    connect(loop, kind, server, 50)
    for count in range(1, 51):
        loop.run(RunMode.NOWAIT)
        assert len(guests.accepted) == count


@pytest.mark.parametrize("code", [errno.ECONNABORTED, errno.EINTR, errno.EPROTO, errno.EPERM])
def test_a_connection_that_is_gone_is_passed_over(
    loop: Loop, kernel: Refusing, kind: Kind, code: int
) -> None:
    guests = Guests(kind)
    server = kind.server(loop, guests)
    connect(loop, kind, server, 3)
    kernel.refusals = [code, code]
    loop.run(RunMode.NOWAIT)
    assert (len(guests.accepted), guests.errors) == (1, [])
    assert kernel.asked == 3


def test_a_listener_rests_if_each_connection_is_gone(loop: Loop, kernel: Refusing, kind: Kind) -> None:
    guests = Guests(kind)
    server = kind.server(loop, guests)
    connect(loop, kind, server, 1)
    kernel.refusals = [errno.EPERM] * (2 * ACCEPTS_PER_EVENT)
    while not guests.accepted:
        loop.run(RunMode.ONCE)
    assert guests.errors == [errno.EPERM] * 2
    assert kernel.sleeps == [SECOND] * 2


@IN_BOTH_ORDERS
@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_listener_pauses_on_exhausted_resources_and_then_goes_on(
    loop: Loop, kernel: Refusing, kind: Kind, code: int, run_once: Callable[[Loop], None]
) -> None:
    guests = Guests(kind)
    server = kind.server(loop, guests)
    connect(loop, kind, server, 3)
    kernel.refusals = [code]
    for _ in range(10):
        run_once(loop)
    assert (len(guests.accepted), guests.errors) == (0, [code])
    assert kernel.asked == 1
    kernel.clock += SECOND
    for _ in range(4):
        run_once(loop)
    assert (len(guests.accepted), guests.errors) == (3, [code])


def test_a_listener_that_rests_does_not_turn(loop: Loop, kernel: Refusing, kind: Kind) -> None:
    guests = Guests(kind)
    server = kind.server(loop, guests)
    connect(loop, kind, server, 1)
    kernel.refusals = [errno.EMFILE] * 3
    while not guests.accepted:
        loop.run(RunMode.ONCE)
    assert guests.errors == [errno.EMFILE] * 3
    assert kernel.sleeps == [SECOND] * 3


def test_a_listener_that_rests_is_closed_with_its_handle(loop: Loop, kernel: Refusing, kind: Kind) -> None:
    guests = Guests(kind)
    server = kind.server(loop, guests)
    connect(loop, kind, server, 1)
    kernel.refusals = [errno.EMFILE]
    loop.run(RunMode.NOWAIT)
    assert guests.errors == [errno.EMFILE]
    for handle in loop.walk():
        handle.close()
    assert not loop.run()
    assert kernel.sleeps == []


def test_a_rest_does_not_keep_the_loop_alive_by_itself(loop: Loop, kernel: Refusing, kind: Kind) -> None:
    server = kind.server(loop, Guests(kind))
    connect(loop, kind, server, 1)
    kernel.refusals = [errno.EMFILE]
    loop.run(RunMode.NOWAIT)
    server.unref()
    assert not loop.run()


def test_real_exhaustion_is_survived(loop: Loop, kernel: Refusing, kind: Kind) -> None:
    guests = Guests(kind)
    server = kind.server(loop, guests)
    loop.run(RunMode.NOWAIT)  # the loop has made all that it needs
    connect(loop, kind, server, 5)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as highest:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest.fileno() + 1, hard))
    try:
        for _ in range(10):
            loop.run(RunMode.NOWAIT)
        assert len(guests.accepted) == 1  # the one free number
        assert guests.errors == [errno.EMFILE]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    while len(guests.accepted) < 5:
        loop.run(RunMode.ONCE)
    assert guests.errors == [errno.EMFILE]


def test_a_socket_that_fails_is_reported_once_and_left_alone(
    loop: Loop, kernel: Refusing, kind: Kind
) -> None:
    guests = Guests(kind)
    server = kind.server(loop, guests)
    connect(loop, kind, server, 1)
    kernel.refusals = [errno.EINVAL]
    for _ in range(5):
        loop.run(RunMode.NOWAIT)
    assert (guests.errors, kernel.asked) == ([errno.EINVAL], 1)


def test_a_server_closed_in_its_callback_takes_no_more(loop: Loop, kernel: Refusing, kind: Kind) -> None:
    seen: list[str] = []

    def close(server: Stream, error: OSError | None) -> None:
        seen.append("connection")
        server.accept(kind.handle(loop))
        server.close(lambda handle: seen.append("closed"))

    server = kind.server(loop, close)
    connect(loop, kind, server, 5)
    loop.run(RunMode.NOWAIT)
    assert seen == ["connection", "closed"]
    assert kernel.asked == 1


def test_a_listener_is_not_among_the_users_handles(loop: Loop, kind: Kind) -> None:
    server = kind.server(loop, Guests(kind))
    timer = Timer(loop)
    assert loop.walk() == [server, timer]
    assert loop.metrics().active_handles == 1
