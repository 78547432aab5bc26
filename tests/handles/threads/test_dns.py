"""Name resolution: results and errors as the socket module has them, slow and cancellable."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from whorl.core import Host, Loop, RunMode
from whorl.handles import ThreadPool, getaddrinfo, getnameinfo


class Resolver(Host):
    """A process that knows a few names, and holds back answers for others."""

    def __init__(self) -> None:
        self.pool = ThreadPool(4)
        self.asked: list[tuple[Any, ...]] = []
        self.begun = threading.Semaphore(0)
        self.answers = threading.Event()

    def thread_pool(self) -> ThreadPool:
        return self.pool

    def getaddrinfo(self, *question: Any) -> list[tuple[Any, ...]]:
        self.asked.append(question)
        if question[0] == "slow":
            self.begun.release()
            self.answers.wait()
        if question[0] == "unknown":
            raise socket.gaierror(socket.EAI_NONAME, "not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 80))]

    def getnameinfo(self, *question: Any) -> tuple[str, str]:
        self.asked.append(question)
        return "host.example", "http"


@pytest.fixture
def resolver() -> Resolver:
    return Resolver()


@pytest.fixture
def world(resolver: Resolver, no_leak: None) -> Iterator[Loop]:
    """Yield a loop in a process with names of its own."""
    loop = Loop(host=resolver)
    yield loop
    resolver.answers.set()
    loop.run()
    loop.close()


def test_a_name_is_resolved(world: Loop, resolver: Resolver) -> None:
    seen: list[Any] = []
    request = getaddrinfo(world, "host.example", 80, lambda *args: seen.append(args))
    world.run()
    assert seen == [(request, [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 80))], None)]


def test_getaddrinfo_and_getnameinfo_pass_their_arguments_on(world: Loop, resolver: Resolver) -> None:
    getaddrinfo(
        world,
        b"host",
        "http",
        lambda *args: None,
        family=socket.AF_INET6,
        type=socket.SOCK_DGRAM,
        proto=17,
        flags=socket.AI_PASSIVE,
    )
    world.run()
    getnameinfo(world, ("192.0.2.1", 80), lambda *args: None, flags=socket.NI_NUMERICSERV)
    world.run()
    assert resolver.asked == [
        (b"host", "http", socket.AF_INET6, socket.SOCK_DGRAM, 17, socket.AI_PASSIVE),
        (("192.0.2.1", 80), socket.NI_NUMERICSERV),
    ]


def test_an_address_is_named(world: Loop) -> None:
    seen: list[Any] = []
    request = getnameinfo(world, ("192.0.2.1", 80), lambda *args: seen.append(args))
    world.run()
    assert seen == [(request, ("host.example", "http"), None)]


def test_an_unknown_name_is_an_error(world: Loop) -> None:
    seen: list[Any] = []
    getaddrinfo(world, "unknown", 80, lambda request, found, error: seen.append((found, error)))
    world.run()
    ((found, error),) = seen
    assert found is None
    assert isinstance(error, socket.gaierror)
    assert error.errno == socket.EAI_NONAME


def test_slow_answers_leave_half_of_the_threads_to_others(world: Loop, resolver: Resolver) -> None:
    requests = [getaddrinfo(world, "slow", None, lambda *args: None) for _ in range(5)]
    for _ in range(2):
        resolver.begun.acquire()
    assert resolver.pool.queue_length == 3
    assert resolver.pool.busy <= 4
    assert [request.cancel() for request in requests].count(True) == 3
    resolver.answers.set()
    world.run()
    assert len(resolver.asked) == 2


def test_a_request_that_waits_can_be_cancelled(world: Loop, resolver: Resolver) -> None:
    seen: list[Any] = []
    for _ in range(2):
        getaddrinfo(world, "slow", None, lambda *args: None)
        resolver.begun.acquire()
    request = getnameinfo(world, ("192.0.2.1", 80), lambda *args: seen.append(args))
    assert request.cancel()
    world.run(RunMode.NOWAIT)
    ((reported, names, error),) = seen
    assert (reported, names) == (request, None)
    assert isinstance(error, OSError)
    assert error.errno == errno.ECANCELED


def test_the_real_resolver_answers(loop: Loop) -> None:
    seen: list[Any] = []
    flags = socket.AI_NUMERICHOST
    getaddrinfo(loop, "127.0.0.1", 80, lambda request, found, error: seen.append((found, error)), flags=flags)
    loop.run()
    ((found, error),) = seen
    assert error is None
    assert found == socket.getaddrinfo("127.0.0.1", 80, flags=flags)


@pytest.mark.parametrize("host", ["127.0.0.1\0.example", b"127.0.0.1\0.example"])
def test_a_name_with_a_zero_byte_is_refused(loop: Loop, host: str | bytes) -> None:
    with pytest.raises(ValueError, match="zero byte"):
        getaddrinfo(loop, host, 80, print)
    assert not loop.alive()
